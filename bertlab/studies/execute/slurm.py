"""A study as SLURM job arrays: one script for each level of the plan, and one that submits them."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from bertlab.files import write_text
from bertlab.studies.execute.run_state import State, read_states
from bertlab.studies.plan.plan import PlannedRun

RUN_ONE = (sys.executable, "-m", "bertlab", "study", "run-one")

_LEVEL = """\
#!/bin/bash
#SBATCH --job-name={name}-{level}
#SBATCH --array={array}
#SBATCH --ntasks=1
#SBATCH --signal=B:TERM@120
# --- fill in what a run needs, and what the cluster wants; a second # switches a line off ---
#SBATCH --cpus-per-task=4
#SBATCH --time=24:00:00
##SBATCH --mem=16G
##SBATCH --gres=gpu:1
##SBATCH --partition=
##SBATCH --account=
# Each task is one run of the study, by its number in the plan. One that the time limit stops goes
# on from its last checkpoint when the scripts are written and submitted again.
# The study has to be on a file system that all nodes share.
cd {working_directory} || exit 1
export OMP_NUM_THREADS="${{SLURM_CPUS_PER_TASK:-1}}"
exec {command} {study_dir} --number "$SLURM_ARRAY_TASK_ID"
"""
_SUBMIT = """\
#!/bin/bash
# Submits the levels of the study; each waits for the end of the one before, and each of its tasks
# looks for itself whether the run that it needs is done.
set -euo pipefail
cd {scripts}
"""


def write_slurm(
    plan: Sequence[PlannedRun], study_dir: Path, *, program: Sequence[str] = RUN_ONE
) -> list[Path]:
    """Write ``STUDY/slurm``: job arrays of the runs that are not done, and ``submit.sh``.

    Args:
        plan: the runs, parents before their children; a task's number is its place here, from 0.
        study_dir: directory of the study.
        program: the command that takes the study and ``--number`` and executes one run.

    Returns:
        The scripts, ``submit.sh`` as the last one; none if all runs are done.
    """
    study_dir = study_dir.resolve()
    scripts = study_dir / "slurm"
    for old in (*scripts.glob("level-*.sbatch"), *scripts.glob("submit.sh")):
        old.unlink()
    paths: list[Path] = []
    submit = _SUBMIT.format(scripts=shlex.quote(str(scripts)))
    for level, numbers in _levels(plan, study_dir).items():
        path = scripts / f"level-{level}.sbatch"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = _LEVEL.format(
            name=re.sub(r"[^A-Za-z0-9._-]+", "-", study_dir.name),
            level=level,
            array=_ranges(numbers),
            working_directory=shlex.quote(str(Path.cwd())),
            command=shlex.join(program),
            study_dir=shlex.quote(str(study_dir)),
        )
        write_text(path, content)
        # not afterok: one run that fails would keep back all, also those that do not need it
        waits = ' --dependency=afterany:"$job"' if paths else ""
        submit += f"job=$(sbatch --parsable{waits} {path.name})\n"
        submit += f'job="${{job%%;*}}"  # the cluster stands behind it\necho "{path.name}: $job"\n'
        paths.append(path)
    if paths:
        paths.append(scripts / "submit.sh")
        write_text(paths[-1], submit)
        paths[-1].chmod(0o755)
    return paths


def _levels(plan: Sequence[PlannedRun], study_dir: Path) -> dict[int, list[int]]:
    """Return the numbers of the runs that are not done, by how many runs come before them, from 1.

    Runs that are done do not count: what they left is there.
    """
    states = read_states(plan, study_dir)
    level: dict[str | None, int] = {None: 0}  # no parent
    found: dict[int, list[int]] = {}
    for number, run in enumerate(plan):
        if states[run.id] is State.DONE:
            level[run.id] = 0
            continue
        level[run.id] = level[run.parent] + 1
        found.setdefault(level[run.id], []).append(number)
    return dict(sorted(found.items()))


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as SLURM writes them: ``0-3,7``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])  # [0, 1, 2, 3, 7] -> [0, 3], [7, 7]
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
