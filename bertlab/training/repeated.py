"""``fit --seeds`` and ``fit --against_scratch``: the same run several times, and a table of all.

Each is a process of its own, with a run directory of its own: ``RUN_DIR`` or ``RUN_DIR/seed-S``;
what starts from new random weights is below ``RUN_DIR/from-scratch``.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from bertlab.checkpoints.run_directory import choose_run_directory
from bertlab.config.request import Request
from bertlab.config.seeding import seed_list
from bertlab.config.yaml_files import split_arguments
from bertlab.console import print_table
from bertlab.errors import ConfigError
from bertlab.files import write_json
from bertlab.training.results import Results, read_results, show

FROM_SCRATCH = "from-scratch"
OPTIONS = ("--seeds", "--against_scratch")
_OFF = (None, "null", "false")
PRE_TRAINED = "pre-trained"
Spread = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Repetition:
    """Runs that differ in their seed, or in whether they start from pre-trained weights.

    Attributes:
        arguments: of each, without seed and directory.
        directory: of all.
        seeds: one a run; None for one run with the config's seed.
        against_scratch: whether each is also run from new random weights.
    """

    arguments: tuple[str, ...]
    directory: Path
    seeds: tuple[int, ...] | None
    against_scratch: bool

    def run_directory(self, seed: int | None, scratch: bool) -> Path:
        """Return where a run is kept."""
        place = self.directory / FROM_SCRATCH if scratch else self.directory
        return place if seed is None else place / f"seed-{seed}"

    def run_arguments(self, seed: int | None, scratch: bool) -> list[str]:
        """Return the arguments of ``fit`` for a run."""
        more = ["--seeds", "null", "--against_scratch", "false"]
        more += ["--run_dir", str(self.run_directory(seed, scratch))]
        more += [] if seed is None else ["--seed_everything", str(seed)]
        more += ["--model.from_scratch", "true"] if scratch else []
        return [*self.arguments, *more]


def find_repetition(argv: Sequence[str], plan: Request) -> Repetition | None:
    """Return what ``fit`` is to repeat by its arguments and config files; None if it is one run.

    A run that goes on (``--ckpt_path``) is one run, whatever its config file says.

    Raises:
        ConfigError: if the seeds are none, stand beside a seed or a checkpoint, or there is no
            pre-trained model to compare with.
    """
    values: dict[str, str | None] = {}
    rest: list[str] = []
    for key, value, tokens in split_arguments(argv):
        if key in (*OPTIONS, "--run_dir", "--seed_everything", "--ckpt_path"):
            values[key] = value
        if key not in (*OPTIONS, "--run_dir"):
            rest += tokens
    wanted = [key for key in OPTIONS if values.get(key) not in _OFF]
    if wanted and "--ckpt_path" in values:
        raise ConfigError(f"{wanted[0]} and --ckpt_path: give one of them, not both")
    if "--ckpt_path" in values or "-h" in argv or "--help" in argv:
        return None
    given = {key: values[key] if key in values else _in_files(plan, key[2:]) for key in OPTIONS}
    against_scratch = given["--against_scratch"] not in _OFF
    if given["--seeds"] in _OFF and not against_scratch:
        return None
    seeds = None if given["--seeds"] in _OFF else _seeds(given["--seeds"])
    if seeds is not None and "--seed_everything" in values:
        raise ConfigError("--seeds and --seed_everything: give one of them, not both")
    if against_scratch and plan.init_from is None:
        raise ConfigError(
            "against_scratch: found no pre-trained model to compare with, expected "
            "--model.init_from; or take against_scratch out"
        )
    directory = choose_run_directory(values.get("--run_dir"), plan.run_name)
    return Repetition(tuple(rest), directory, seeds, against_scratch)


def fit_repeatedly(repetition: Repetition) -> int:
    """Run each, and print one table of all.

    Returns:
        0, or the exit code of the first run that did not end well.
    """
    for seed in repetition.seeds or (None,):
        for scratch in (False, True) if repetition.against_scratch else (False,):
            code = _fit(repetition.run_arguments(seed, scratch))
            if code:
                return code
    report(repetition)
    return 0


def _fit(arguments: Sequence[str]) -> int:
    """Run ``bertlab fit`` in a process of its own; its Ctrl-C is its own to answer."""
    command = [sys.executable, "-m", "bertlab", "fit", *arguments]
    with subprocess.Popen(command) as process:  # noqa: S603
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue


def report(repetition: Repetition) -> None:
    """Write ``repeated.json``, print mean and deviation of the metrics, and what pre-training buys.

    Where there are runs from scratch, figures are those of each run's best step, if it has one.
    """
    starts = {PRE_TRAINED: False, FROM_SCRATCH: True} if repetition.against_scratch else {"": False}
    spreads = {start: _spreads(repetition, scratch) for start, scratch in starts.items()}
    seeds = repetition.seeds
    content = {"seeds": seeds, **(spreads if repetition.against_scratch else spreads[""])}
    write_json(repetition.directory / "repeated.json", content)
    title = str(repetition.directory)
    if seeds is not None:
        title += f": {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    if not repetition.against_scratch:
        columns = {"last step": spreads[""]["last"], "best step": spreads[""]["best"]}
    else:
        step = "best" if spreads[PRE_TRAINED]["best"] else "last"
        title += f", {step} step of each run"
        columns = {start: each[step] for start, each in spreads.items()}
    names = next(iter(columns.values()))
    rows = [
        (name, *(_show(name, column.get(name)) for column in columns.values())) for name in names
    ]
    print_table(title, rows, ("metric", *columns), figures=len(columns))


def _spreads(repetition: Repetition, scratch: bool) -> dict[str, Spread]:
    runs = [repetition.run_directory(seed, scratch) for seed in repetition.seeds or (None,)]
    return {
        "last": spread([read_results(run) for run in runs]),
        "best": spread([read_results(run, best=True) for run in runs]),
    }


def spread(results: Sequence[Results]) -> Spread:
    """Return mean and sample standard deviation of each metric that all runs have."""
    names = [name for name in results[0] if all(name in each for each in results)]
    values = {name: [each[name] for each in results] for name in names}
    return {
        name: {
            "mean": statistics.fmean(each),
            "deviation": statistics.stdev(each) if len(each) > 1 else None,
        }
        for name, each in values.items()
    }


def _show(name: str, found: Mapping[str, float | None] | None) -> str:
    mean, deviation = (None, None) if found is None else (found["mean"], found["deviation"])
    if mean is None:
        return ""
    return show(name, mean) + ("" if deviation is None else f" ± {show(name, deviation)}")


def _seeds(given: str | None) -> tuple[int, ...]:
    return tuple(seed_list(yaml.safe_load(given or "")))


def _in_files(plan: Request, key: str) -> str | None:
    """Return the last value of a key in the config files, as YAML."""
    found = [content[key] for _, content in plan.files if key in content]
    return None if not found else json.dumps(found[-1])
