"""What each step of a ladder adds: a variant against the one that it builds on.

A study that goes from one recipe to another, one change at a time, asks of each change what it is
worth, with the changes before it in place. The comparisons with the baseline answer another
question: what all changes so far are worth together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bertlab_pages.tables import Grid, TitledGrid
from bertlab_studies.report.columns import MIXED, SHOWN
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.difference_table import DIFFERENCE, figures
from bertlab_studies.report.statistics import after_holm_and_looks, compare_contrasts
from bertlab_studies.study_scores import Measure, StudyScores

_LEGEND = (
    "Each variant − the one that it builds on: what its own change is worth with the changes "
    "before it in place. p: after Holm over this table, which is a family of its own: the "
    "comparisons with the baseline do not count in it, nor it in theirs. The test is that of the "
    f"differences to the baseline. {SHOWN} shown at 5 %."
)
_COLUMNS = DIFFERENCE[2:6]  # difference, interval, p, could show


@dataclass(frozen=True)
class Step:
    """A variant, and what its change is worth.

    Attributes:
        variant: its name.
        builds_on: the variant that it adds a change to.
        comparisons: by name of the primary measure, after Holm over all steps and measures.
    """

    variant: str
    builds_on: str
    comparisons: Mapping[str, Comparison]


def steps_of(scores: StudyScores) -> list[Step]:
    """Test each variant against the one that it builds on, in each primary measure.

    Args:
        scores: what was found.

    Returns:
        In the order of the variants; empty if none builds on another.

    Raises:
        DataError: predictions of variants are of different rows.
    """
    steps = [
        (name, found.builds_on)
        for name, found in scores.variants.items()
        if found.builds_on is not None
    ]
    wanted = {name: {name: 1.0, before: -1.0} for name, before in steps}
    found = {
        (name, measure.name): one
        for measure in _primary(scores)
        for name, one in compare_contrasts(scores, measure, wanted).items()
    }
    found = after_holm_and_looks(found, scores.looks)
    return [
        Step(name, before, {each.name: found[name, each.name] for each in _primary(scores)})
        for name, before in steps
    ]


def step_tables(scores: StudyScores) -> list[TitledGrid]:
    """Return the table of the steps, if a variant builds on another."""
    rows = []
    for step in steps_of(scores):
        mark = MIXED * any(
            scores.variants[each].is_mixed for each in (step.variant, step.builds_on)
        )
        for measure in _primary(scores):
            cells = figures(step.comparisons[measure.name], measure)[: len(_COLUMNS)]
            unit = ", points" if measure.is_share else ""
            rows.append((step.variant + mark, step.builds_on, measure.name + unit, *cells))
    if not rows:
        return []
    headings = (("variant",), ("builds on",), ("measure",), *_COLUMNS)
    return [TitledGrid("What each step adds", Grid(headings, tuple(rows), len(_COLUMNS)), _LEGEND)]


def _primary(scores: StudyScores) -> list[Measure]:
    return [measure for measure in scores.measures if measure.is_primary]
