"""The table of differences in a report: a row for each comparison, its figures as texts."""

from collections.abc import Iterator, Mapping

from bertlab_studies.report import findings
from bertlab_studies.report.columns import LEARNED, NOTHING, SHOWN, label_of
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.study_scores import Measure, StudyScores

LEGEND = (
    "Differences are variant − baseline; those of shares in percentage points. p: t-test over "
    "seeds and, where rows have scores, over rows or whole clusters of them; after Holm's "
    "correction where several comparisons are tested. Three variants or more tell the noise "
    "together. Could show: the smallest true difference that so many seeds and rows would show "
    "four times in five, were the noise as estimated, and in brackets how well that is known "
    "(80 %). Effect size: the difference in deviations of a run over seeds. Rows: their share of "
    "the uncertainty."
)
OF_LEARNED = f" {LEARNED} of the runs that learned: others failed (see the findings)."
DIFFERENCE: tuple[tuple[str, ...], ...] = (
    ("variant",),
    ("measure",),
    ("difference",),
    ("95 % interval",),
    ("p",),
    ("could", "show"),
    ("effect", "size"),
    ("rows", "%"),
    ("seeds",),
)


def difference_rows(
    scores: StudyScores, compared: Mapping[tuple[str, str], Comparison]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each variant but the baseline, and each primary measure."""
    measures = {measure.name: measure for measure in scores.measures}
    for (variant, name), found in compared.items():
        measure = measures[name]
        if measure.is_primary:
            unit = ", points" if measure.is_share else ""
            label = label_of(scores, variant, against_baseline=True)
            yield label, name + unit, *figures(found, measure)


def figures(found: Comparison, measure: Measure) -> tuple[str, ...]:
    """Return the cells of a comparison: difference, interval, p, and the others of the table.

    All are of the comparison that a star is about.
    """
    shown = (SHOWN if found.significant else "") + (LEARNED if found.of_learned else "")
    found = found.decided
    digits = findings.decimals(found, measure)

    def number(value: float | None) -> str:
        return NOTHING if value is None else findings.signed(value, measure, digits)

    interval = NOTHING if found.low is None else f"{number(found.low)} … {number(found.high)}"
    p, effect, share = found.p_adjusted, found.effect_size, found.row_share
    before, after = found.runs
    could = number(found.detectable).removeprefix("+")
    if found.detectable_range is not None:
        low, high = (number(end).removeprefix("+") for end in found.detectable_range)
        could += f" ({low} … {high})"
    return (
        number(found.difference) + shown,
        interval,
        NOTHING if p is None else findings.format_p(p).removeprefix("p "),
        could,
        NOTHING if effect is None else f"{effect:+.2f}".replace("-", "−"),
        NOTHING if share is None else f"{100 * share:.0f}",
        str(after) if before == after else f"{after} / {before}",
    )
