"""Directories of runs: refused early where they cannot be written, and never shared."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bertlab.checkpoints.run_directory import (
    MANIFEST_FILE,
    RESULTS_FILE,
    RUN_ENVIRONMENT,
    choose_run_directory,
    claim,
    give_up,
    resumed_run,
)
from bertlab.config.merge import read_request
from bertlab.errors import ConfigError, OutputError


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_ENVIRONMENT, "")  # restored at the end


def test_choosing_leaves_nothing_behind(tmp_path: Path) -> None:
    assert choose_run_directory(None, "run") == Path("runs/run")
    assert choose_run_directory("a/b/c", "run") == Path("a/b/c")
    assert list(tmp_path.iterdir()) == []


def test_directories_in_use_are_passed_over_or_refused(tmp_path: Path) -> None:
    claim(Path("runs/run"), {"seed": 1})
    assert json.loads(Path("runs/run", MANIFEST_FILE).read_text("utf-8")) == {"seed": 1}
    assert choose_run_directory(None, "run") == Path("runs/run-2")
    with pytest.raises(ConfigError, match="already holds a run"):
        choose_run_directory("runs/run", "run")


def test_a_home_directory_is_meant_behind_an_equals_sign_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_request(["--run_dir=~/run"]).run_dir == str(tmp_path / "run")
    assert choose_run_directory("~/run", "run") == tmp_path / "run"
    claim(tmp_path / "run", {})
    checkpoint = tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert resumed_run(checkpoint, "~/run") == tmp_path / "run"
    monkeypatch.setenv("RANK", "1")
    assert choose_run_directory("~/run", "run") == tmp_path / "run"


def test_a_run_without_checkpoints_begins_anew_unless_it_is_finished() -> None:
    run = Path("runs/run")
    claim(run, {"seed": 1})
    give_up(run)
    assert not (run / MANIFEST_FILE).exists()
    claim(run, {"seed": 1})
    (run / RESULTS_FILE).write_text("{}")
    with pytest.raises(OutputError, match=r"runs/run: holds a finished run .*another --run_dir"):
        give_up(run)
    assert json.loads((run / MANIFEST_FILE).read_text("utf-8")) == {"seed": 1}


@pytest.mark.parametrize("below", ["", "below", "below/deeper"])
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(tmp_path: Path, below: str) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    with pytest.raises(ConfigError, match=r"run_dir: .*locked.* cannot be written: Permission"):
        choose_run_directory(str(folder / below), "run")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs procfs")
@pytest.mark.parametrize("place", ["/proc/run", "/proc/run/deeper"])
def test_a_file_system_without_files(place: str) -> None:
    with pytest.raises(ConfigError, match=f"run_dir: {place} cannot be written: .*--run_dir"):
        choose_run_directory(place, "run")


def test_one_of_many_gets_a_directory(tmp_path: Path) -> None:
    def attempt(number: int) -> int | None:
        try:
            claim(tmp_path / "run", {"number": number})
        except ConfigError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(attempt, range(40)) if number is not None]
    assert len(winners) == 1
    with pytest.raises(ConfigError, match="another run has taken"):
        claim(tmp_path / "run", {})
    assert json.loads((tmp_path / "run" / MANIFEST_FILE).read_text("utf-8")) == {
        "number": winners[0]
    }
    assert [path.name for path in (tmp_path / "run").iterdir()] == [MANIFEST_FILE]
