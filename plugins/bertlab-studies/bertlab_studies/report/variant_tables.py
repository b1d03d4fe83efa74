"""Tables of a report by variant: means, what variants differ in and cost, what each run reached."""

from collections.abc import Iterator, Mapping, Sequence

from bertlab.extend import yaml_inline
from bertlab_pages.tables import Grid
from bertlab_studies.report.columns import (
    DEGENERATE,
    LEARNED,
    NOTHING,
    SHOWN,
    Column,
    columns_of,
    label_of,
)
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.repeats import repeat_rows
from bertlab_studies.report.statistics import summarize
from bertlab_studies.study_scores import Cell, StudyScores


def mean_rows(
    scores: StudyScores,
    compared: Mapping[tuple[str, str], Comparison],
    columns: Sequence[Column],
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each variant, with its mean in each column."""
    for variant in scores.variants:
        label = label_of(scores, variant)
        if variant == scores.baseline:
            label += " (baseline)"
        cells = [
            _mean(
                scores.cell(variant, column.measure),
                column,
                len(scores.seeds),
                compared.get((variant, column.measure.name)),
            )
            for column in columns
        ]
        yield label, *cells


def _mean(cell: Cell, column: Column, seeds: int, compared: Comparison | None) -> str:
    found = summarize(cell.values.values())
    marks = SHOWN if compared is not None and compared.significant else ""
    if marks and compared is not None and compared.of_learned:
        marks += LEARNED
    if cell.degenerate:
        marks += DEGENERATE
    if found.mean is None:
        return NOTHING + marks
    spread = "" if found.deviation is None else f" ± {column.number(found.deviation)}"
    count = "" if found.n == seeds else f" (n={found.n})"
    return f"{column.number(found.mean)}{spread}{marks}{count}"


def settings_of(scores: StudyScores) -> Grid:
    """Return a row for each config key in which variants differ, and for what a run costs."""
    variants = scores.variants.values()
    keys = dict.fromkeys(key for variant in variants for key in variant.settings)
    rows = [
        (
            key,
            *(
                yaml_inline(variant.settings[key]) if key in variant.settings else NOTHING
                for variant in variants
            ),
        )
        for key in keys
    ]
    costs = {
        "tokens of a pre-training": [variant.tokens for variant in variants],
        "FLOPs of a run": [variant.flops for variant in variants],
        "seconds of a run": [summarize(variant.seconds.values()).mean for variant in variants],
    }
    for label, values in costs.items():
        if any(value is not None for value in values):
            rows.append((label, *(NOTHING if v is None else f"{v:,.4g}" for v in values)))
    return Grid((("",), *((label_of(scores, name),) for name in scores.variants)), tuple(rows))


def runs_of(scores: StudyScores) -> Grid:
    """Return a row for each variant and seed, with what that run reached; fine-tunings below it."""
    columns = columns_of(scores)
    rows: list[tuple[str, ...]] = []
    for variant in scores.variants:
        cells = [scores.cell(variant, column.measure) for column in columns]
        label = label_of(scores, variant)
        for seed in scores.seeds:
            both = zip(cells, columns, strict=True)
            rows.append(
                (
                    label,
                    scores.name_of_seed(seed),
                    *(_single(cell, seed, each) for cell, each in both),
                )
            )
            rows += repeat_rows(scores, variant, seed, columns)
    headings = (("variant",), ("seed",), *(column.heading for column in columns))
    return Grid(headings, tuple(rows), figures=1 + len(columns))


def _single(cell: Cell, seed: int, column: Column) -> str:
    value = cell.values.get(seed)
    mark = DEGENERATE if seed in cell.degenerate else ""
    return (NOTHING if value is None else column.number(value)) + mark
