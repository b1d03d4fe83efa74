"""Ray and SLURM as executors that bertlab-studies and ``bertlab prepare`` find by name."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bertlab import Executor
from bertlab.data.corpus.store import TokenStore
from bertlab.errors import CommandError, TokenStoreError
from bertlab.plugins import index
from bertlab_cluster.executors import Ray, Slurm
from bertlab_studies.execute.contract import option_names
from bertlab_studies.execute.executor import make_executor
from bertlab_studies.execute.schedule import Summary
from bertlab_studies.study_command import make_parser
from tests.conftest import Command


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ray", {"cpus": 1e9}, "cpus: found 1000000000.0, expected at most 4,096"),
        ("ray", {"gpus": float("nan")}, "gpus: found nan, expected 0 or more"),
        ("ray", {"cpus": float("inf")}, "cpus: found inf"),
        ("ray", {"retries": -1}, "retries: found -1, expected 0 or more"),
        ("slurm", {"threads": 0}, "threads: found 0, expected 1 or more"),
        ("ray", {"slurm": {}}, "slurm: the executor ray has no such option"),
    ],
)
def test_wrong_options(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        make_executor(name, options)


def test_options_reach_what_executes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def note(plan: object, study_dir: Path, **given: Any) -> Summary:
        asked.append({"study_dir": study_dir, **given})
        return Summary()

    monkeypatch.setattr("bertlab_cluster.ray.run_on_ray", note)
    monkeypatch.setattr("bertlab_cluster.slurm.run_on_slurm", note)
    call: dict[str, Any] = {"kept_in": tmp_path, "on_change": print}
    Ray("auto", 2, 0.5, 3).execute([], tmp_path / "tuning", **call)
    Slurm({"time": 5}, 4).execute([], tmp_path / "tuning", **call)
    assert asked == [
        {
            **{"study_dir": tmp_path / "tuning", "on_change": print},
            **{"address": "auto", "cpus": 2, "gpus": 0.5, "retries": 3},
        },
        {
            **{"study_dir": tmp_path / "tuning", "on_change": print},
            **{"options": {"time": 5}, "threads": 4, "retries": 1},
            "kept_in": tmp_path / "slurm" / "options.yaml",
        },
    ]


def test_help_shows_the_options_of_the_executor() -> None:
    on_ray = make_parser("run", ["--executor", "ray"]).format_help()
    on_slurm = make_parser("run", ["--executor=slurm"]).format_help()
    assert all(f"--{name}" in on_ray for name in ("address", "cpus", "gpus", "retries"))
    assert all(f"--{name}" in on_slurm for name in ("slurm", "threads", "retries"))
    assert "--slurm" not in on_ray
    assert option_names("ray", Executor) == ("address",)  # of prepare


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the entry points of this package be missing."""
    every = index.entry_points_of

    @cache
    def others(group: str) -> Any:
        found = every(group)
        return type(found)(e for e in found if not e.value.startswith("bertlab_cluster"))

    monkeypatch.setattr(index, "entry_points_of", others)
    monkeypatch.setattr("bertlab.plugins.index.entry_points_of", others)
    index.forget_installed()
    yield
    monkeypatch.undo()
    index.forget_installed()


@pytest.mark.usefixtures("without_package")
def test_without_the_package_it_says_what_to_install(bertlab: Command) -> None:
    install = "it comes with bertlab-cluster: pip install bertlab-cluster"
    for command in (["study", "run", "studies/quickstart"], ["prepare"]):
        code, _, error = bertlab(*command, "--executor", "ray")
        assert (code, install in error) == (2, True), error
    with pytest.raises(TokenStoreError, match="with bertlab-cluster: pip install bertlab-cluster"):
        TokenStore.open("memory://there/store")


def test_slurm_prepares_nothing(bertlab: Command) -> None:
    code, _, error = bertlab("prepare", "--executor", "slurm")
    assert (code, "slurm executes the runs of studies, and does not prepare" in error) == (2, True)
