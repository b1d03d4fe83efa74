"""Configs by name, and that a built wheel has them."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from bertlab.cli.main import with_config_options
from bertlab.config.merge import read_request
from bertlab.config.shipped import find_config, shipped_configs
from bertlab.errors import ConfigFileError
from tests.conftest import Command

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"


def test_every_config_has_a_name() -> None:
    files = [path.relative_to(CONFIGS) for path in CONFIGS.rglob("*.yaml")]
    assert sorted(shipped_configs()) == sorted(str(path.with_suffix("")) for path in files)
    assert len(files) > 40


@pytest.mark.parametrize(
    "given", ["finetune/mrpc", "finetune/mrpc.yaml", "configs/finetune/mrpc.yaml"]
)
def test_a_name_is_found_from_any_folder(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config(given).samefile(CONFIGS / "finetune" / "mrpc.yaml")
    request = read_request(["--config", given])
    assert (request.head, request.run_name) == ("sentence_pair", "finetune-mrpc")


def test_a_file_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()  # a folder does not
    assert find_config("quickstart").samefile(CONFIGS / "quickstart.yaml")
    (tmp_path / "quickstart.yaml").write_text("run_dir: mine")
    assert find_config("quickstart.yaml") == Path("quickstart.yaml")
    assert find_config("quickstart").samefile(CONFIGS / "quickstart.yaml")


def test_a_pipe_is_a_config_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert find_config(tmp_path / "pipe") == tmp_path / "pipe"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("quikstart", "quickstart"),
        ("mrpc", "finetune/mrpc"),
        ("finetune/mrcp", "finetune/mrpc"),
        ("configs/pretrain/bert-basse.yaml", "pretrain/bert-base"),
        ("mne.yaml", "mine.yaml"),
        ("sub/hers.yml", "sub/hers.yaml"),
    ],
)
def test_the_nearest_config_is_named(
    given: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("mine.yaml", "sub/hers.yaml"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigFileError, match=f"{given}: no such config file, .*mean '{near}'"):
        find_config(given)


@pytest.mark.parametrize("given", ["xyzxyz", "../quickstart", "/quickstart", "no/such/thing"])
def test_nothing_is_near(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigFileError, match="no such config file, nor a config of bertlab's"):
        find_config(given)


def test_a_run_in_the_place_of_a_config(tmp_path: Path, bertlab: Command) -> None:
    code, _, error = bertlab("fit", tmp_path)
    assert code == 2
    assert f"{tmp_path}: found a folder" in error
    assert f"--ckpt_path {tmp_path}" in error


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], []),
        (["a"], ["--config", "a"]),
        (["a", "b", "--x", "1"], ["--config", "a", "--config", "b", "--x", "1"]),
        (["--x", "a"], ["--x", "a"]),
        (["-c", "a", "b"], ["-c", "a", "b"]),
    ],
)
def test_configs_in_front_of_the_options(argv: list[str], expected: list[str]) -> None:
    assert with_config_options(argv) == expected


def test_the_wheels_metadata_is_complete() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"description", "license", "authors", "keywords", "urls"} <= set(project)
    versions = [
        line.rpartition(" ")[2]
        for line in project["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    assert versions == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == ">=3.11,<3.14"


def relative_links(wheel: Path) -> list[str]:
    """Return the links of a wheel's description that would be dead on PyPI."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        links = re.findall(r"\]\(([^)]+)\)", opened.read(name).decode())
    assert len(links) > 30
    return [each for each in links if not each.startswith("https://")]


@pytest.mark.slow
def test_a_wheel_has_the_configs_and_no_dead_links(tmp_path: Path) -> None:
    """`.ci/run` and the workflow `tests` also install it, and train from it in an empty folder."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("bertlab_core-*.whl")
    assert relative_links(wheel) == []
    with zipfile.ZipFile(wheel) as opened:
        names = {each for each in opened.namelist() if "/shipped_configs/" in each}
    configs = {each.relative_to(CONFIGS).as_posix() for each in CONFIGS.rglob("*.yaml")}
    assert configs <= {each.partition("/shipped_configs/")[2] for each in names}
    assert all(each.startswith("bertlab/config/shipped_configs/") for each in names)


def test_help_recommends_a_config_that_is_there(bertlab: Command) -> None:
    _, printed, _ = bertlab("--help")
    line = next(each for each in printed.splitlines() if "Start with:" in each)
    command = line.partition("bertlab ")[2].split()
    assert command == ["fit", "quickstart"]
    assert command[1] in shipped_configs()
