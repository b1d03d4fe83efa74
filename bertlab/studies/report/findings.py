"""Words for what a study found, and for what is wrong with it.

Differences are variant − baseline; those of shares are in percentage points, others in the units of
the measure. Signs are those of the measure; words say which is the better end where lower is.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from bertlab.api.study_scores import Measure, StudyScores
from bertlab.studies.report.row_scores import ExampleComparison
from bertlab.studies.report.statistics import LEVEL, Comparison

FEW_SEEDS = 3  # up to here the deviation itself is hardly known


def describe(comparison: Comparison, measure: Measure) -> str:
    """Return one sentence, without a full stop, on a variant against the baseline.

    For example ``no difference shown (95 % CI −0.6 … +0.9 points; 5 seeds could have shown 1.4)``.
    """
    pairs, difference = comparison.pairs, comparison.difference
    if difference is None or comparison.p is None:
        return f"cannot be tested: {'1 seed' if pairs else 'no seed has values on both sides'}"
    if comparison.is_constant:
        return _describe_constant(comparison, measure)
    digits = decimals(comparison, measure)
    interval = _interval(comparison, measure, digits)
    if comparison.p_adjusted is None:
        by = f"{signed(difference, measure, digits)}{_unit(measure)}"
        return f"{by} ({interval}), not one of the measures that decide"
    p = _p_of(comparison)
    if comparison.significant:
        few = f"; few seeds: {pairs}" if pairs <= FEW_SEEDS else ""
        return f"{_direction(difference, measure, digits)} ({interval}, {p}{few})"
    could = f"{pairs} seeds could have shown"
    if pairs <= FEW_SEEDS:
        could = f"few seeds: {pairs} could have shown"
    detectable = _plain(comparison.minimum_detectable_effect_adjusted or 0.0, measure, digits)
    could = f"{could} {detectable}{_after_holm(comparison)}"
    if comparison.p <= LEVEL:
        interval = f"{interval}, {format_p(comparison.p)} alone, {p}"
    return f"no difference shown ({interval}; {could})"


def describe_examples(examples: ExampleComparison, measure: Measure) -> str:
    """Return one sentence, without a full stop, on the difference over the rows of the test set."""
    over = f"over {examples.rows:,} rows, for the models of {_seeds(examples.seeds)} as they are"
    if examples.low == examples.high:
        return f"{over}: the same in every row"
    digits = decimals(examples, measure)
    difference = f"{signed(examples.difference, measure, digits)}{_unit(measure)}"
    return f"{over}: {difference} ({_interval(examples, measure, digits)}, bootstrap)"


def conclude(scores: StudyScores, comparisons: Mapping[tuple[str, str], Comparison]) -> str:
    """Return one sentence, with a full stop, on the whole study.

    Args:
        scores: what was found.
        comparisons: as `compare_study` returns them.
    """
    measures = {measure.name: measure for measure in scores.measures if measure.is_primary}
    primary = {key: one for key, one in comparisons.items() if key[1] in measures}
    tested = {key: one for key, one in primary.items() if one.p is not None}
    untested = len(primary) - len(tested)
    rest = f"; {untested} more cannot be tested" if untested else ""
    if not tested:
        return f"Nothing can be said yet: no comparison with {scores.baseline} can be tested."
    shown = [
        f"{variant} is {_by(one, measures[name])} in {name}"
        for (variant, name), one in tested.items()
        if one.significant
    ]
    one_only = len(tested) == 1
    of = f"the one comparison with {scores.baseline}"
    if not one_only:
        of = f"{len(shown) or 'none'} of {len(tested)} comparisons with {scores.baseline}"
    if not shown:
        found = "shows no difference" if one_only else "shows a difference after Holm"
        found = f"{found}, which does not show that there is none"
    else:
        found = f"{'shows' if len(shown) == 1 else 'show'} a difference"
        found = f"{found}{'' if one_only else ' after Holm'}: {_listed(shown)}"
    return f"{of[0].upper()}{of[1:]} {found}{rest}."


def warnings(scores: StudyScores) -> list[str]:
    """Return a line for all that makes the study's figures less than they seem.

    Failed and missing runs, values that are not finite, degenerate runs, few seeds: whatever is
    left out of a mean or a comparison, or is in it and should be known, is named.
    """
    lines = []
    if len(scores.seeds) <= FEW_SEEDS:
        remark = "intervals are wide and rest on noise being normal; five or more would say more"
        if len(scores.seeds) < 2:
            remark = "nothing can be tested over seeds; two are the least, five or more say more"
        lines.append(f"{len(scores.seeds)} seed{'' if len(scores.seeds) == 1 else 's'}: {remark}")
    for variant in scores.variants:
        lines += [f"{variant}: failed: {failure}" for failure in scores.variants[variant].failures]
        lines += _missing(scores, variant)
        for measure in scores.measures:
            lines += _suspect(scores, variant, measure)
    return lines


def decimals(interval: Comparison | ExampleComparison, measure: Measure) -> int:
    """Return how many decimals a difference, its interval and what was detectable are given.

    At least one, and as many as half the interval's width (without an interval: the difference)
    needs to show one digit, two for values that are not shares.
    """
    size = abs(interval.difference or 0.0)
    if interval.low is not None and interval.high is not None and interval.high > interval.low:
        size = (interval.high - interval.low) / 2
    if size == 0:
        return 1
    # half width 0.62 points -> 1, 0.062 -> 2
    digits = -math.floor(math.log10(size * (100 if measure.is_share else 1)))
    return max(1, min(6, digits if measure.is_share else digits + 1))


def signed(value: float, measure: Measure, digits: int) -> str:
    """Return a difference as ``−0.6`` or ``+0.9``; 0.0 has no sign. Shares in percentage points."""
    scaled = value * 100 if measure.is_share else value
    text = f"{scaled:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]  # "+0.0" -> "0.0"


def format_p(p: float) -> str:
    """Return ``p 0.21``, ``p 0.004`` or ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p {p:.{2 if p >= 0.1 else 3}f}"


def _describe_constant(comparison: Comparison, measure: Measure) -> str:
    difference, pairs = comparison.difference or 0.0, comparison.pairs
    if difference == 0:
        return "the same in every seed"
    by = _direction(difference, measure, decimals(comparison, measure))
    found = f"{by} in each of {pairs} seeds, with no spread"
    if comparison.p_adjusted is None:
        return f"{found}, not one of the measures that decide"
    prefix = "" if comparison.significant else "no difference shown: "
    return f"{prefix}{found} (sign test, {_p_of(comparison)})"


def _missing(scores: StudyScores, variant: str) -> list[str]:
    """Return a line for each set of seeds without values, naming measures only if they differ."""
    groups: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for measure in scores.measures:
        values = scores.cell(variant, measure).values
        baseline = scores.cell(scores.baseline, measure).values
        missing = tuple(seed for seed in scores.seeds if seed not in values)
        compared = sum(
            math.isfinite(value) and math.isfinite(baseline.get(seed, math.nan))
            for seed, value in values.items()
        )
        groups.setdefault((missing, compared), []).append(measure.name)
    lines = []
    for (missing, compared), names in groups.items():
        where = variant if len(names) == len(scores.measures) else f"{variant}, {_listed(names)}"
        if len(missing) == len(scores.seeds):
            lines.append(f"{where}: no seed has a value")
        elif missing:
            verb = "is" if len(missing) == 1 else "are"
            effect = f"{compared} of {len(scores.seeds)} seeds compared"
            if variant == scores.baseline:
                effect = "no comparison can use " + ("it" if len(missing) == 1 else "them")
            lines.append(f"{where}: {_seeds(missing)} {verb} missing; {effect}")
    return lines


def _suspect(scores: StudyScores, variant: str, measure: Measure) -> list[str]:
    """Return a line for each kind of degenerate run, and for values that are not finite."""
    cell = scores.cell(variant, measure)
    kinds: dict[tuple[str, bool], list[int]] = {}
    for seed, warning in sorted(cell.degenerate.items()):
        counted = math.isfinite(cell.values.get(seed, math.nan))
        kinds.setdefault((warning, counted), []).append(seed)
    lines = []
    for (warning, counted), seeds in kinds.items():
        verb, them = ("is", "it is") if len(seeds) == 1 else ("are", "they are")
        place = "in the mean" if counted else "not in the mean"
        lines.append(
            f"{variant}, {measure.name}: {_seeds(seeds)} {verb} degenerate: {warning};"
            f" {them} {place}"
        )
    broken = [seed for seed, value in sorted(cell.values.items()) if not math.isfinite(value)]
    if broken:
        verb, them = ("has", "it is") if len(broken) == 1 else ("have", "they are")
        lines.append(
            f"{variant}, {measure.name}: {_seeds(broken)} {verb} no finite value;"
            f" {them} left out of mean and comparison"
        )
    return lines


def _by(comparison: Comparison, measure: Measure) -> str:
    return _direction(comparison.difference or 0.0, measure, decimals(comparison, measure))


def _direction(difference: float, measure: Measure, digits: int) -> str:
    """Return ``lower by 1.2 points``, or ``lower (better) by 0.12`` where lower is better."""
    word = "higher" if difference > 0 else "lower"
    if not measure.higher_is_better:
        word += " (worse)" if difference > 0 else " (better)"
    return f"{word} by {_plain(abs(difference), measure, digits)}{_unit(measure)}"


def _interval(interval: Comparison | ExampleComparison, measure: Measure, digits: int) -> str:
    low, high = interval.low, interval.high
    assert low is not None
    assert high is not None
    ends = f"{signed(low, measure, digits)} … {signed(high, measure, digits)}"
    return f"95 % CI {ends}{_unit(measure)}"


def _plain(value: float, measure: Measure, digits: int) -> str:
    return signed(value, measure, digits).removeprefix("+")


def _unit(measure: Measure) -> str:
    return " points" if measure.is_share else ""


def _p_of(comparison: Comparison) -> str:
    assert comparison.p_adjusted is not None
    return f"{format_p(comparison.p_adjusted)}{_after_holm(comparison)}"


def _after_holm(comparison: Comparison) -> str:
    return " after Holm" if comparison.family > 1 else ""


def _seeds(seeds: Sequence[int]) -> str:
    word = "seed" if len(seeds) == 1 else "seeds"
    return f"{word} {_listed(str(seed) for seed in seeds)}"


def _listed(names: Iterable[str]) -> str:
    *others, last = list(names)
    return f"{', '.join(others)} and {last}" if others else last
