"""``bertlab study``: run, watch and report an ablation."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser

from bertlab.config.overrides import parse_settings
from bertlab.config.parse import parse_arguments
from bertlab.config.seeding import seed_list
from bertlab.config.yaml_files import take_options
from bertlab.errors import CommandError, nearest, warn
from bertlab.studies.execute.execution import execute
from bertlab.studies.execute.live_table import watch
from bertlab.studies.execute.local import run_local
from bertlab.studies.execute.ray import run_on_ray
from bertlab.studies.execute.slurm import write_slurm
from bertlab.studies.folder import (
    STUDY_FILE,
    StudyFolder,
    claim_study,
    keep_content,
    open_study,
)
from bertlab.studies.plan.tables import print_plan, print_status
from bertlab.studies.report.cells import report_of
from bertlab.studies.report.render import write_report
from bertlab.studies.report.terminal import print_report
from bertlab.training.trainer import quiet_lightning

REPORT = "report"
_USAGE = """usage: bertlab study ACTION STUDY … [options]

  run        run what is not done yet, then print and write the report
  plan       print the runs and what they cost; --slurm true writes job arrays
  status     how far each run is
  report     the table, findings and plots of what is done
  compare    one table of several studies
  add-seeds  ask for more: bertlab study add-seeds STUDY --seeds N
  run-one    run one of a plan's runs (what a SLURM task does)

STUDY is a study file (configs/studies/…) or the directory of a study.

  --study_dir DIR            where the study of a file is kept; runs/studies/NAME by default
  --set KEY=VALUE            for all variants; may be repeated
  --evaluate_set KEY=VALUE   for all evaluations, or NAME.KEY=VALUE for one; may be repeated

Options of an action:  bertlab study ACTION --help
"""
_COMMON = ("--study_dir", "--set", "--evaluate_set")


def main(command: str, argv: list[str]) -> int:
    """Run ``study``; return the exit code."""
    del command
    quiet_lightning()
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(_USAGE)
        return 0
    action, rest = argv[0], argv[1:]
    if action not in _ACTIONS:
        raise CommandError(
            f"study: no action is called {action!r}{nearest(action, _ACTIONS)} "
            f"(there are: {', '.join(_ACTIONS)})"
        )
    if "-h" in rest or "--help" in rest:
        _parser(action).print_help()
        return 0
    names = list(takewhile(lambda token: not token.startswith("-"), rest))
    if not names:
        raise CommandError(f"study {action}: found no study, expected its file or directory")
    if len(names) > 1 and action != "compare":
        raise CommandError(f"study {action}: found {' '.join(names)}, expected one study")
    common, own = take_options(rest[len(names) :], _COMMON)
    options = parse_options(action, own)
    study_dir = common["--study_dir"][-1] if common["--study_dir"] else None
    settings = parse_settings(common["--set"], "--set")
    evaluate_settings = parse_settings(common["--evaluate_set"], "--evaluate_set")
    folders = [open_study(name, study_dir, settings, evaluate_settings) for name in names]
    return _ACTIONS[action](folders, **options)


def parse_options(action: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return the options of an action.

    Raises:
        CommandError: if one is unknown or has a wrong value.
    """
    return vars(parse_arguments(_parser(action), argv))


def _parser(action: str) -> ArgumentParser:
    parser = ArgumentParser(prog=f"bertlab study {action} STUDY", exit_on_error=False)
    parser.add_function_arguments(_ACTIONS[action], skip={"folders"})
    return parser


def run(
    folders: Sequence[StudyFolder],
    workers: int = 1,
    threads: int | None = None,
    devices: int | None = None,
    retries: int = 1,
    executor: Literal["local", "ray"] = "local",
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 0,
    accept_changes: bool = False,
) -> int:
    """Run what is not done yet, then print and write the report.

    Args:
        folders: the study.
        workers: runs at a time on this machine.
        threads: CPU threads of each; by default all cores shared among the workers.
        devices: CUDA devices of each; by default those that are there shared among the workers.
        retries: how often a run that fails is tried again, from its last checkpoint.
        executor: ``ray`` spreads the runs over a Ray cluster.
        address: of the cluster; one is started on this machine if not given.
        cpus: of each run, for Ray.
        gpus: of each run, for Ray.
        accept_changes: go on though the study changed; runs that are not asked any more are left
            out of the report.
    """
    for name, given, least in (
        ("workers", workers, 1),
        ("threads", threads, 1),
        ("devices", devices, 0),
        ("retries", retries, 0),
        ("cpus", cpus, 0),
        ("gpus", gpus, 0),
    ):
        if given is not None and not given >= least:  # NaN is not either
            raise CommandError(f"{name}: found {given}, expected {least} or more")
    folder = folders[0]
    for change in claim_study(folder, accept_changes):
        sys.stdout.write(f"changed: {change}\n")
    with watch(folder.runs, folder.path) as on_change:
        execute_all = (
            partial(run_local, workers=workers, threads=threads, devices=devices)
            if executor == "local"
            else partial(run_on_ray, address=address, cpus=cpus, gpus=gpus)
        )
        summary = execute_all(folder.runs, folder.path, retries=retries, on_change=on_change)
    for line in summary.lines(folder.path):
        sys.stdout.write(line + "\n")
    if summary.done:
        _report(folder)
    return summary.exit_code


def plan(folders: Sequence[StudyFolder], slurm: bool = False) -> int:
    """Print the runs, what each costs and how far it is; run nothing.

    Args:
        folders: the study.
        slurm: also write job arrays and ``submit.sh``.
    """
    folder = folders[0]
    print_plan(folder.plan, folder.path)
    if slurm:
        claim_study(folder, accept_changes=False)
        for path in write_slurm(folder.runs, folder.path):
            sys.stdout.write(f"{path}\n")
    return 0


def status(folders: Sequence[StudyFolder]) -> int:
    """Print how far each run is.

    Args:
        folders: the study.
    """
    print_status(folders[0].runs, folders[0].path)
    _name_others(folders[0])
    return 0


def report(folders: Sequence[StudyFolder]) -> int:
    """Print and write what the runs that are done have found.

    Args:
        folders: the study.
    """
    _report(folders[0])
    _name_others(folders[0])
    return 0


def compare(folders: Sequence[StudyFolder], output: str = "runs/studies/comparison") -> int:
    """Print and write one report of several studies.

    Args:
        folders: the studies.
        output: folder of the report.
    """
    if len(folders) < 2:
        raise CommandError("study compare: found one study, expected two or more")
    joined = report_of(*(folder.scores() for folder in folders))
    print_report(joined)
    _say_where(write_report(joined, Path(output)))
    return 0


def add_seeds(folders: Sequence[StudyFolder], seeds: int | list[int]) -> int:
    """Ask for more seeds; ``bertlab study run`` then runs what is new.

    Args:
        folders: the study, which was run.
        seeds: how many in all, or a list of them.
    """
    folder, wanted = folders[0], seed_list(seeds)
    if not (folder.path / STUDY_FILE).is_file():
        raise CommandError(f"{folder.path}: no study was run there yet; set seeds in its file")
    if set(folder.study.seeds) - set(wanted):
        raise CommandError(
            f"--seeds: found {seeds}, expected the study's own "
            f"({', '.join(map(str, folder.study.seeds))}) and more"
        )
    keep_content(folder.path, {**folder.content, "seeds": wanted})
    sys.stdout.write(f"{len(wanted)} seeds; go on with: bertlab study run {folder.path}\n")
    return 0


def run_one(folders: Sequence[StudyFolder], number: int, threads: int | None = None) -> int:
    """Make one attempt at one run; nothing if it is done.

    Args:
        folders: the study.
        number: of the run in the plan, from 0.
        threads: CPU threads.
    """
    folder = folders[0]
    if not 0 <= number < len(folder.runs):
        raise CommandError(f"--number: found {number}, expected 0 to {len(folder.runs) - 1}")
    environment = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return execute(folder.runs[number], folder.path, environment=environment)


def _name_others(folder: StudyFolder) -> None:
    """Warn of runs that are there and not in the study as it is now: they are left out."""
    there = {path.name for path in (folder.path / "runs").glob("*") if path.is_dir()}
    others = sorted(there - set(folder.plan.runs))
    if others:
        warn(
            f"{folder.path}: {len(others)} runs are not of the study as it is now "
            f"({others[0]}, …); its file has changed, or bertlab has (a run's manifest.json names "
            "the version)"
        )


def _report(folder: StudyFolder) -> None:
    found = report_of(folder.scores())
    print_report(found)
    _say_where(write_report(found, folder.path / REPORT))


def _say_where(files: Sequence[Path]) -> None:
    sys.stdout.write(f"report: {files[0]} ({', '.join(path.name for path in files[1:])})\n")


_ACTIONS: dict[str, Callable[..., int]] = {
    "run": run,
    "plan": plan,
    "status": status,
    "report": report,
    "compare": compare,
    "add-seeds": add_seeds,
    "run-one": run_one,
}
