"""Whether the control of a variant explains its effect away.

A variant that is better than the baseline may be so for another reason than the one that it was
made for: it has more weights, reads more text, or takes more steps. Its control shares that other
reason and lacks the change itself. What the change is worth is the variant − its control.
"""

from collections.abc import Iterator, Mapping

from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.findings import describe
from bertlab_studies.report.statistics import after_holm_and_looks, compare_contrasts
from bertlab_studies.study_scores import StudyScores

Comparisons = Mapping[tuple[str, str], Comparison]


def compare_controls(scores: StudyScores) -> dict[tuple[str, str], Comparison]:
    """Test each variant that has a control against it, in each primary measure.

    The comparisons are a family of their own for Holm's correction, as the steps of a ladder are.

    Args:
        scores: what was found.

    Returns:
        Variant − control, by name of the control and of the measure; empty if there is none.

    Raises:
        DataError: predictions of variants are of different rows.
    """
    wanted = {
        name: {each.control_of: 1.0, name: -1.0}
        for name, each in scores.variants.items()
        if each.control_of is not None
    }
    found = {
        (control, measure.name): one
        for measure in scores.measures
        if measure.is_primary and wanted
        for control, one in compare_contrasts(scores, measure, wanted).items()
    }
    return after_holm_and_looks(found, scores.looks)


def control_findings(scores: StudyScores, compared: Comparisons) -> Iterator[str]:
    """Yield a sentence on each control and measure.

    Args:
        scores: what was found.
        compared: the comparisons with the baseline.
    """
    if scores.is_crossed:  # tests nothing
        return
    measures = {each.name: each for each in scores.measures}
    for (control, name), beside in compare_controls(scores).items():
        variant = scores.variants[control].control_of or ""
        effect, own = compared.get((variant, name)), compared.get((control, name))
        if effect is not None and own is not None:
            yield (
                f"{variant} beside its control {control}, {name}: "
                f"{_verdict(variant, control, effect, beside, own)}; {variant} − {control}: "
                f"{describe(beside, measures[name], control)}."
            )


def _verdict(
    variant: str, control: str, effect: Comparison, beside: Comparison, own: Comparison
) -> str:
    """Return in words what a control says of an effect."""
    if effect.difference is None or not effect.significant:
        return f"{variant} shows no effect that could be explained"
    if beside.difference is None or beside.p is None:
        return "whether the control explains the effect cannot be tested"
    alike = beside.difference * effect.difference > 0
    if beside.significant and alike:
        return "the effect is more than the control's: it is not explained away"
    if beside.significant:
        return f"the control explains the effect away, as {control} has a larger one"
    if own.significant and (own.difference or 0) * effect.difference > 0:
        return "the control explains the effect away, as it shows one too and no more is shown"
    return (
        "it is open whether the control explains the effect, as neither a difference between them "
        "nor an effect of the control is shown"
    )
