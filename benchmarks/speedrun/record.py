"""A speedrun's record: the study's figures, each recipe's time of a step, and whether they count.

    python benchmarks/speedrun/record.py studies/two-cores modern        # on an idle machine

README.md beside this file has the rules. What is printed is also written to ``records/NAME.json``
here, with the versions and hashes of the runs.
"""

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the benchmarks are no package

from alternating_runs import Arm, alternate  # noqa: E402

from bertlab.errors import print_table  # noqa: E402

LOSS, BLIMP = "held out loss", "blimp accuracy"
MOST_PARAMETERS = 1_600_000
FEWEST_SEEDS = 5
STEPS, WARM_UP = 130, 30  # of the runs that are timed
SAME = ("corpus", "tokenizer", "precision", "packages", "plugins", "python", "platform")


@dataclass
class Recipe:
    """What a variant of the study came to; means over seeds, ± their standard deviation.

    Attributes:
        parameters: of encoder and heads.
        steps: of training.
        tokens: that were read.
        step_ms: median time of a step in milliseconds, on two threads.
        minutes: ``steps`` times that.
        loss: on the held-out text, in nats.
        blimp: share of pairs that are judged rightly.
        against_baseline: of the loss: difference, 95 % interval, p after Holm; None: it is itself.
    """

    name: str
    parameters: int
    steps: int
    tokens: float
    step_ms: float
    minutes: float
    loss: tuple[float, float]
    blimp: tuple[float, float]
    against_baseline: dict[str, Any] | None


def main() -> None:
    """Read the study, time the steps, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of a finished study")
    parser.add_argument("name", help="of the record")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    report = read(given.study / "report" / "report.json")
    study = report["studies"][0]
    runs = runs_by_variant(given.study, study)
    times = time_steps({name: folders[0] for name, folders in runs.items()}, given.rounds)
    recipes = [recipe_of(name, study, folders, times[name]) for name, folders in runs.items()]
    broken = [text for each in recipes for text in rules_broken(each, recipes[0], study)]
    print_table(
        f"{given.study}, {len(study['seeds'])} seeds",
        [cells(each) for each in recipes],
        (
            "",
            "parameters",
            "steps",
            "tokens",
            "ms a step",
            "minutes",
            "held-out loss",
            "BLiMP",
            "p",
        ),
        figures=8,
    )
    print("\n".join(broken) or "all rules are kept")
    record = {
        "study": study["name"],
        "analysis": study["analysis_sha256"],
        "seeds": study["seeds"],
        "machine": f"{platform.processor() or platform.machine()}, 2 threads",
        "recipes": [asdict(each) for each in recipes],
        "rules_broken": broken,
        **same_of_all([folder for folders in runs.values() for folder in folders]),
    }
    output = HERE / "records" / f"{given.name}.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    print(output)


def runs_by_variant(folder: Path, study: Mapping[str, Any]) -> dict[str, list[Path]]:
    """Return the directories of the pre-trainings by variant, the baseline first."""
    return {
        variant["name"]: sorted(folder.glob(f"runs/{variant['name']}-base-seed-*"))
        for variant in study["variants"]
    }


def time_steps(configs: Mapping[str, Path], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of a step of each recipe; the recipes take turns."""
    settings = {
        "run_dir": "{run}",
        "trainer.max_steps": STEPS,
        "trainer.val_check_interval": STEPS,
        "data.validation_sequences": 50,
        "trainer.callbacks": "[{class_path: step_clock.StepClock}]",
    }
    arms = []
    for name, folder in configs.items():
        command = [sys.executable, "-m", "bertlab", "fit", "--config", str(folder / "config.yaml")]
        command += [f"--{key}={value}" for key, value in settings.items()]
        arms.append(Arm(name, command, {"OMP_NUM_THREADS": "2"}))
    found = alternate(arms, rounds, WARM_UP)
    return {
        name: 1e3 * statistics.median(each.step for each in runs) for name, runs in found.items()
    }


def recipe_of(name: str, study: Mapping[str, Any], runs: Sequence[Path], step_ms: float) -> Recipe:
    """Return the figures of a variant."""
    manifest = read(runs[0] / "manifest.json")
    config = yaml.safe_load((runs[0] / "config.yaml").read_text("utf-8"))
    steps = config["trainer"]["max_steps"]
    comparisons = [
        {key: each[key] for key in ("difference", "low", "high", "p_adjusted", "significant")}
        for each in study["comparisons"]
        if (each["variant"], each["measure"]) == (name, LOSS)
    ]
    return Recipe(
        name=name,
        parameters=manifest["parameters"],
        steps=steps,
        tokens=manifest["training_tokens"],
        step_ms=step_ms,
        minutes=steps * step_ms / 60_000,
        loss=mean_and_deviation(study, name, LOSS),
        blimp=mean_and_deviation(study, name, BLIMP),
        against_baseline=comparisons[0] if comparisons else None,
    )


def mean_and_deviation(study: Mapping[str, Any], variant: str, measure: str) -> tuple[float, float]:
    """Return mean and standard deviation over the seeds; raise SystemExit where one lacks."""
    values = [
        each["value"]
        for each in study["values"]
        if (each["variant"], each["measure"]) == (variant, measure)
    ]
    if None in values or len(values) < len(study["seeds"]):
        raise SystemExit(f"{variant}: {measure}: the study is not finished")
    return statistics.fmean(values), statistics.stdev(values)


def rules_broken(recipe: Recipe, baseline: Recipe, study: Mapping[str, Any]) -> list[str]:
    """Return why a recipe does not count."""
    rules = {
        f"{recipe.parameters:,} parameters": recipe.parameters > MOST_PARAMETERS,
        f"{len(study['seeds'])} seeds": len(study["seeds"]) < FEWEST_SEEDS,
        f"{recipe.minutes:.1f} minutes": recipe.minutes > 1.02 * baseline.minutes,
    }
    return [f"{recipe.name}: {what}" for what, is_broken in rules.items() if is_broken]


def same_of_all(runs: Sequence[Path]) -> dict[str, Any]:
    """Return what the manifests of all runs say alike; raise SystemExit if they do not."""
    manifests = [read(run / "manifest.json") for run in runs]
    for key in SAME:
        if any(each[key] != manifests[0][key] for each in manifests):
            raise SystemExit(f"the runs differ in {key}")
    return {key: manifests[0][key] for key in SAME}


def cells(recipe: Recipe) -> tuple[str, ...]:
    """Return the line of a recipe."""
    p = "" if recipe.against_baseline is None else f"{recipe.against_baseline['p_adjusted']:.3g}"
    return (
        recipe.name,
        f"{recipe.parameters:,}",
        f"{recipe.steps:,}",
        f"{recipe.tokens / 1e6:.1f} M",
        f"{recipe.step_ms:.1f}",
        f"{recipe.minutes:.1f}",
        f"{recipe.loss[0]:.3f} ± {recipe.loss[1]:.3f}",
        f"{recipe.blimp[0]:.1%} ± {recipe.blimp[1]:.1%}",
        p,
    )


def read(file: Path) -> dict[str, Any]:
    """Return a JSON object."""
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


if __name__ == "__main__":
    main()
