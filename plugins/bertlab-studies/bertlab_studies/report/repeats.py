"""Fine-tunings of one pre-training: their mean is its value, and the report says which are missing.

The unit of all statistics is the pre-training. Fine-tunings of one share its weights: they tell its
score more exactly, and are no further evidence on the recipe (Sellam et al. 2022, The MultiBERTs).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from bertlab.api import DataError
from bertlab.extend import SEED_PARTS
from bertlab_studies.report.columns import Column
from bertlab_studies.study_scores import Cell, StudyScores


@dataclass(frozen=True)
class RunResult:
    """What one run reached in a measure.

    Attributes:
        value: of the measure.
        degenerate: what is wrong with a run that learned nothing.
        examples: ``(rows,)`` float64: each evaluation row's own score, where it is known.
    """

    value: float
    degenerate: str | None = None
    examples: NDArray[np.float64] | None = None


def add_results(cell: Cell, seed: int, results: Mapping[int | None, RunResult], where: str) -> None:
    """Add what the runs of a seed reached to a variant's values.

    Args:
        cell: that gets them.
        seed: of the pre-training.
        results: by fine-tuning seed; of the key None where seeds are not nested.
        where: variant and measure, for messages.

    Raises:
        DataError: fine-tunings were scored on different numbers of rows.
    """
    if not results:
        return
    finite = [each for each in results.values() if math.isfinite(each.value)]
    counted = finite or list(results.values())[:1]
    cell.values[seed] = fmean(each.value for each in counted)
    scores = [each.examples for each in counted if each.examples is not None]
    if len(scores) == len(counted):
        lengths = sorted({len(each) for each in scores})
        if len(lengths) > 1:
            raise DataError(
                f"{where}, seed {seed}: predictions of {' and '.join(map(str, lengths))} rows "
                "cannot be averaged row by row; score all fine-tunings on the same test set"
            )
        cell.examples[seed] = np.mean(scores, axis=0)  # (rows,)
    warning = "; ".join(_degenerate(results))
    if warning:
        cell.degenerate[seed] = warning
        learned = [each.value for each in finite if each.degenerate is None]
        if learned:
            cell.learned[seed] = fmean(learned)
    repeats = {seed: each.value for seed, each in results.items() if seed is not None}
    if repeats:
        cell.repeats[seed] = repeats
        cell.degenerate_repeats[seed] = {
            finetune: each.degenerate
            for finetune, each in results.items()
            if finetune is not None and each.degenerate is not None
        }


def _degenerate(results: Mapping[int | None, RunResult]) -> Iterator[str]:
    """Yield what is wrong with runs, each text once, after the fine-tunings it is true of."""
    texts: dict[str, list[int]] = {}
    for seed, each in results.items():
        if each.degenerate is not None and seed is None:
            yield each.degenerate
        elif each.degenerate is not None and seed is not None:
            texts.setdefault(each.degenerate, []).append(seed)
    for text, seeds in texts.items():
        yield f"in {fine_tunings(seeds)}, {text}"


def fine_tunings(seeds: Sequence[int]) -> str:
    """Return ``fine-tuning 4``, or ``fine-tunings 2, 4``."""
    return f"fine-tuning{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def seed_warnings(scores: StudyScores) -> list[str]:
    """Return a line for each way in which the seeds of a study say less than they seem to.

    That is where fine-tunings of a pre-training have no value, where a study starts from given
    checkpoints, so that its seeds are of fine-tuning only, and where it varies parts of a run only.
    """
    lines = []
    if scores.factors and not scores.is_crossed:
        lines.append(_fixed_parts(next(iter(scores.factors.values()))))
    if scores.checkpoints:
        one = len(scores.checkpoints) == 1
        these, recipes = (
            ("this checkpoint", "the recipe that made it")
            if one
            else ("these checkpoints", "the recipes that made them")
        )
        lines.append(
            f"seeds are of fine-tuning only: runs start from {', '.join(scores.checkpoints)}, so "
            f"tests and intervals speak for {these}, not for {recipes}; a study that pre-trains "
            "as well, with seeds: {pretrain: 3, finetune: 5}, speaks for recipes"
        )
    for variant in scores.variants:
        for measure in scores.measures:
            left_out = "; ".join(_left_out(scores.cell(variant, measure), scores.finetune_seeds))
            if left_out:
                lines.append(f"{variant}, {measure.name}: {left_out}; means are of the others")
    return lines


def _fixed_parts(factors: Iterable[str]) -> str:
    varied = [part for name in factors for part in name.split("+")]
    fixed = [part for part in SEED_PARTS if part not in varied]
    if not fixed:
        return "all parts of a pre-training have the same seed; fine-tunings have seed 1"
    return (
        f"only the seed of {' and '.join(varied)} varies: tests and intervals speak for the one "
        f"{', '.join(fixed)} that all runs have, and for the one seed of fine-tunings if there are "
        "any, not for others; seeds: N speaks for all"
    )


def _left_out(cell: Cell, asked: Sequence[int]) -> Iterator[str]:
    """Yield the fine-tunings of each pre-training that are not in its value, if some are."""
    for seed, values in sorted(cell.repeats.items()):
        missing = [each for each in asked if each not in values]
        broken = [each for each, value in values.items() if not math.isfinite(value)]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield f"{fine_tunings(missing)} of seed {seed} {verb} missing"
        if broken and len(broken) < len(values):  # else the seed itself has no finite value
            verb = "has" if len(broken) == 1 else "have"
            yield f"{fine_tunings(broken)} of seed {seed} {verb} no finite value"


def repeat_rows(
    scores: StudyScores, variant: str, seed: int, columns: Sequence[Column]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each fine-tuning of a pre-training, with what it reached."""
    found = [scores.cell(variant, each.measure).repeats.get(seed, {}) for each in columns]
    for finetune in scores.finetune_seeds:
        if any(finetune in values for values in found):
            reached = (
                column.number(values[finetune]) if finetune in values else ""
                for column, values in zip(columns, found, strict=True)
            )
            yield variant, f"{seed}, fine-tuning {finetune}", *reached
