"""The columns of a report's table: a measure each, its heading, and the decimals of its values."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bertlab_studies.report.statistics import Summary, summarize
from bertlab_studies.study_scores import Measure, StudyScores

NOTHING = "–"
SHOWN = "*"
DEGENERATE = "†"
LEARNED = "¶"  # behind a difference of the runs that learned, where others failed
LOWER = "↓"
MIXED = "‡"  # behind a variant whose runs are not of the same data


@dataclass(frozen=True)
class Column:
    """A measure, and how its values are written.

    Attributes:
        measure: of the first study that has it.
        digits: decimals of its values, so that the spread over seeds can be seen.
    """

    measure: Measure
    digits: int

    @property
    def heading(self) -> tuple[str, str]:
        """The task, and the metric with its unit and an arrow where lower is better."""
        unit = ", %" if self.measure.is_share else ""
        arrow = "" if self.measure.higher_is_better else f" {LOWER}"
        return self.measure.task, f"{self.measure.metric}{unit}{arrow}"

    def number(self, value: float) -> str:
        """Return a value in the column's unit, with its decimals."""
        scaled = 100 * value if self.measure.is_share else value
        return f"{scaled:,.{self.digits}f}".replace("-", "−")


def columns_of(*studies: StudyScores) -> tuple[Column, ...]:
    """Return all measures that any of the studies has, in their order."""
    measures: dict[str, Measure] = {}
    summaries: dict[str, list[Summary]] = {}
    for study in studies:
        for measure in study.measures:
            measures.setdefault(measure.name, measure)
            summaries.setdefault(measure.name, []).extend(
                summarize(study.cell(variant, measure).values.values())
                for variant in study.variants
            )
    return tuple(
        Column(measure, digits_of(measure, summaries[name])) for name, measure in measures.items()
    )


def digits_of(measure: Measure, summaries: Iterable[Summary]) -> int:
    """Return decimals that give the middle deviation two figures: one or two for percentages."""
    deviations = sorted(found.deviation for found in summaries if found.deviation)
    if not deviations:
        return 1 if measure.is_share else 3
    middle = deviations[len(deviations) // 2] * (100 if measure.is_share else 1)
    wanted = 1 - math.floor(math.log10(middle))  # 0.4 points -> 2, 0.04 -> 3
    return min(max(wanted, 1), 2) if measure.is_share else min(max(wanted, 0), 4)


def label_of(study: StudyScores, variant: str, against_baseline: bool = False) -> str:
    """Return a variant's name, marked if its runs, or the baseline's, are of different data."""
    compared = [variant, study.baseline] if against_baseline else [variant]
    return variant + MIXED * any(study.variants[name].is_mixed for name in compared)
