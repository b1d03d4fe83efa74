"""``bertlab study``: run, watch and report an ablation."""

import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser

from bertlab.arguments import parse_arguments
from bertlab.config_files import split_arguments
from bertlab.errors import ConfigError, nearest
from bertlab.printed_tables import print_table
from bertlab.seeding import seed_list
from bertlab.studies.cost import pretraining_cost
from bertlab.studies.execution import execute
from bertlab.studies.live_table import watch
from bertlab.studies.local_executor import Summary, run_local
from bertlab.studies.overrides import parse_settings
from bertlab.studies.ray_executor import run_on_ray
from bertlab.studies.report_cells import report_of
from bertlab.studies.report_html import write_report
from bertlab.studies.report_tables import print_report
from bertlab.studies.run_state import read_states, read_status
from bertlab.studies.slurm import write_slurm
from bertlab.studies.study_folder import (
    STUDY_FILE,
    StudyFolder,
    claim_study,
    keep_content,
    open_study,
)
from bertlab.trainer import quiet_lightning

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
  --set KEY=VALUE            the same for all variants; may be repeated
  --evaluate_set KEY=VALUE   the same for all evaluations; may be repeated

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
        raise ConfigError(
            f"study: no action is called {action!r}{nearest(action, _ACTIONS)} "
            f"(there are: {', '.join(_ACTIONS)})"
        )
    function = _ACTIONS[action]
    parser = ArgumentParser(prog=f"bertlab study {action} STUDY", exit_on_error=False)
    parser.add_function_arguments(function, skip={"folders"})
    if "-h" in rest or "--help" in rest:
        parser.print_help()
        return 0
    names = list(takewhile(lambda token: not token.startswith("-"), rest))
    if not names:
        raise ConfigError(f"study {action}: found no study, expected its file or directory")
    if len(names) > 1 and function is not compare:
        raise ConfigError(f"study {action}: found {' '.join(names)}, expected one study")
    common: dict[str, list[str]] = {key: [] for key in _COMMON}
    own: list[str] = []
    for key, value, tokens in split_arguments(rest[len(names) :]):
        if key not in _COMMON:
            own += tokens
        elif value is None:
            raise ConfigError(f"{key}: expected a value after it")
        else:
            common[key].append(value)
    options = vars(parse_arguments(parser, own))
    study_dir = common["--study_dir"][-1] if common["--study_dir"] else None
    settings = parse_settings(common["--set"], "--set")
    evaluate_settings = parse_settings(common["--evaluate_set"], "--evaluate_set")
    folders = [open_study(name, study_dir, settings, evaluate_settings) for name in names]
    return function(folders, **options)


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
    folder = folders[0]
    return run_study(
        folder,
        accept_changes,
        lambda on_change: (
            run_local(
                folder.runs,
                folder.path,
                workers=workers,
                threads=threads,
                devices=devices,
                retries=retries,
                on_change=on_change,
            )
            if executor == "local"
            else run_on_ray(
                folder.runs,
                folder.path,
                address=address,
                cpus=cpus,
                gpus=gpus,
                retries=retries,
                on_change=on_change,
            )
        ),
    )


def run_study(
    folder: StudyFolder, accept_changes: bool, execute_runs: Callable[[Any], Summary]
) -> int:
    """Execute a study's runs while showing them, and report; return the exit code."""
    for change in claim_study(folder, accept_changes):
        sys.stdout.write(f"changed: {change}\n")
    with watch(folder.runs, folder.path) as on_change:
        summary = execute_runs(on_change)
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
    states = read_states(folder.runs, folder.path)
    rows, tokens, flops = [], 0.0, 0.0
    for each in folder.runs:
        config = folder.plan.configs[each.variant, each.stage]
        cost = None if config["model"].get("head") else pretraining_cost(config)
        if cost is not None:
            tokens, flops = tokens + cost.tokens, flops + cost.flops
        shown = ("", "") if cost is None else (f"{cost.tokens:.3g}", f"{cost.flops:.3g}")
        rows.append((each.id, str(states[each.id]), *shown))
    print_table(f"{folder.path}: {len(rows)} runs", rows, ("run", "state", "tokens", "FLOPs"), 2)
    sys.stdout.write(
        f"pre-training together: at most {tokens:.3g} tokens, {flops:.3g} FLOPs; what fine-tuning "
        "costs is known when its data is read\n"
    )
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
    folder = folders[0]
    states = read_states(folder.runs, folder.path)
    rows = []
    for each in folder.runs:
        found = read_status(each, folder.path, states[each.id])
        step = "" if found.step is None else f"{found.step + 1:,}"
        step += f" of {each.steps:,}" if step and each.steps else ""
        times = (str(found.attempts), f"{found.seconds:,.0f}")
        rows.append((each.id, str(found.state), step, *times, found.last_line))
    headings = ("run", "state", "step", "attempts", "seconds", "")
    print_table(str(folder.path), rows, headings)
    return 0


def report(folders: Sequence[StudyFolder]) -> int:
    """Print and write what the runs that are done have found.

    Args:
        folders: the study.
    """
    _report(folders[0])
    return 0


def compare(folders: Sequence[StudyFolder], output: str = "runs/studies/comparison") -> int:
    """Print and write one report of several studies.

    Args:
        folders: the studies.
        output: folder of the report.
    """
    if len(folders) < 2:
        raise ConfigError("study compare: found one study, expected two or more")
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
        raise ConfigError(f"{folder.path}: no study was run there yet; set seeds in its file")
    if set(folder.study.seeds) - set(wanted):
        raise ConfigError(
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
        raise ConfigError(f"--number: found {number}, expected 0 to {len(folder.runs) - 1}")
    environment = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return execute(folder.runs[number], folder.path, environment=environment)


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
