"""``bertlab fit --seeds N``: the same run with several seeds, and what they agree on."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from bertlab.checkpoints.run_checkpoint import BEST
from bertlab.config_files import compose, split_arguments
from bertlab.errors import ConfigError
from bertlab.printed_tables import print_table
from bertlab.results import Results, show
from bertlab.run_directory import choose_run_directory, write_json

Spread = dict[str, dict[str, float]]


def fit_seeds(argv: Sequence[str], fit: Callable[[list[str]], int]) -> int:
    """Run ``fit`` once a seed, each in ``RUN_DIR/seed-S``; print mean and deviation.

    Args:
        argv: arguments of ``fit``, with ``--seeds``.
        fit: runs one and returns its exit code.

    Returns:
        0, or the exit code of the first run that did not end well.

    Raises:
        ConfigError: if the seeds are none, or stand beside a seed or a checkpoint.
    """
    values: dict[str, str | None] = {}
    rest: list[str] = []
    for key, value, tokens in split_arguments(argv):
        if key in ("--seeds", "--run_dir", "--seed_everything", "--ckpt_path"):
            values[key] = value
        else:
            rest += tokens
    for key in ("--seed_everything", "--ckpt_path"):
        if key in values:
            raise ConfigError(f"--seeds and {key}: give one of them, not both")
    seeds = parse_seeds(values["--seeds"])
    directory = choose_run_directory(values.get("--run_dir"), compose(rest).run_name)
    for seed in seeds:
        run = directory / f"seed-{seed}"
        code = fit([*rest, "--seed_everything", str(seed), "--run_dir", str(run)])
        if code:
            return code
    report(directory, seeds)
    return 0


def parse_seeds(given: str | None) -> list[int]:
    """Return the seeds 1 … N of a number, or those of a list.

    Raises:
        ConfigError: if it is neither.
    """
    found = None if given is None else yaml.safe_load(given)
    seeds = list(range(1, found + 1)) if type(found) is int else found
    if (
        not isinstance(seeds, list)
        or not seeds
        or any(type(seed) is not int or seed < 0 for seed in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        raise ConfigError(f"--seeds: found {given}, expected a number of seeds or a list: [1, 2]")
    return seeds


def report(directory: Path, seeds: Sequence[int]) -> None:
    """Write ``seeds.json`` and print the metrics' mean and deviation, at the last and best step."""
    last = [_read(directory / f"seed-{seed}" / "results.json") for seed in seeds]
    best = [_read(directory / f"seed-{seed}" / BEST, "results") for seed in seeds]
    spreads = {"last": spread(last), "best": spread(best)}
    write_json(directory / "seeds.json", {"seeds": list(seeds), **spreads})
    rows = [
        (name, *(_show(name, spreads[when].get(name)) for when in ("last", "best")))
        for name in spreads["last"]
    ]
    headings = ("metric", "last step", "best step")
    print_table(f"{directory}: {len(seeds)} seeds", rows, headings, figures=2)


def spread(results: Sequence[Results]) -> Spread:
    """Return mean and sample standard deviation of each metric that all runs have."""
    names = [name for name in results[0] if all(name in each for each in results)]
    values = {name: [each[name] for each in results] for name in names}
    return {
        name: {
            "mean": statistics.fmean(each),
            "deviation": statistics.stdev(each) if len(each) > 1 else math.nan,
        }
        for name, each in values.items()
    }


def _show(name: str, found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    deviation = found["deviation"]
    spread_shown = "" if math.isnan(deviation) else f" ± {show(name, deviation)}"
    return f"{show(name, found['mean'])}{spread_shown}"


def _read(path: Path, key: str | None = None) -> Results:
    """Return the metrics in a JSON file, or below a key of it; nothing where there is none."""
    if not path.is_file():
        return {}
    content = json.loads(path.read_text("utf-8"))
    results: Results = content if key is None else content[key]
    return results
