"""The scripts of a study for SLURM, run by a stand-in for ``sbatch``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertlab.studies.execute.execution import execute
from bertlab.studies.execute.slurm import write_slurm
from bertlab.studies.plan.plan import PlannedRun
from tests.studies.fake_fit import FAKE, fake_run

# runs each task at once and prints a job's number, as `sbatch --parsable` does
SBATCH = """#!/bin/bash
script="${@: -1}"
echo "$@" >> "$SBATCH_CALLS"
for span in $(sed -n 's/^#SBATCH --array=//p' "$script" | tr , ' '); do
  for number in $(seq "${span%-*}" "${span#*-}"); do
    SLURM_ARRAY_TASK_ID=$number SLURM_CPUS_PER_TASK=3 bash "$script" || true
  done
done
wc -l < "$SBATCH_CALLS"
"""
TASK = 'echo "$1|$2|$3|$OMP_NUM_THREADS|$PWD" >> "$TASKS"'


def plan() -> list[PlannedRun]:
    return [
        fake_run("a"),
        fake_run("a-x", "a"),
        fake_run("b"),
        fake_run("b-x", "b"),
        fake_run("b-y", "b"),
    ]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study in a folder whose name a shell would take apart, and a fake ``sbatch``."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SBATCH_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("TASKS", str(tmp_path / "tasks"))
    folder = tmp_path / "a 'study' of $HOME; `touch oops` %j"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder / "nsp & more"


def submit(scripts: list[Path]) -> str:
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True)
    return subprocess.run([str(scripts[-1])], check=True, capture_output=True, text=True).stdout


def test_levels_are_submitted_in_order_and_each_task_is_one_run(
    study: Path, tmp_path: Path
) -> None:
    scripts = write_slurm(plan(), study, program=("bash", "-c", TASK, "run-one"))
    assert [path.name for path in scripts] == ["level-1.sbatch", "level-2.sbatch", "submit.sh"]
    assert "#SBATCH --array=0,2\n" in scripts[0].read_text()
    assert "#SBATCH --array=1,3-4\n" in scripts[1].read_text()
    assert submit(scripts) == "level-1.sbatch: 1\nlevel-2.sbatch: 2\n"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == "--parsable level-1.sbatch"
    assert calls[1] == "--parsable --dependency=afterany:1 level-2.sbatch"
    tasks = (tmp_path / "tasks").read_text().splitlines()
    expected = [f"{study}|--number|{number}|3|{study.parent}" for number in (0, 2, 1, 3, 4)]
    assert tasks == expected
    assert not (study.parent / "oops").exists()


def test_what_is_done_is_left_out(study: Path) -> None:
    runs = plan()
    for run in (runs[0], runs[2], runs[3]):
        assert execute(run, study, environment={}, program=FAKE) == 0
    scripts = write_slurm(runs, study)
    assert [path.name for path in scripts] == ["level-1.sbatch", "submit.sh"]
    assert "#SBATCH --array=1,4\n" in scripts[0].read_text()
    assert f"exec {sys.executable} -m bertlab study run-one " in scripts[0].read_text()
    assert "dependency" not in scripts[1].read_text()
    for run in runs:
        execute(run, study, environment={}, program=FAKE)
    assert write_slurm(runs, study) == []
    assert list((study / "slurm").iterdir()) == []


def test_directives_come_before_the_first_command(study: Path) -> None:
    lines = write_slurm(plan(), study)[0].read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    assert all(not line.startswith("#SBATCH") for line in lines[first:])
    assert "#SBATCH --job-name=nsp-more-1" in lines
