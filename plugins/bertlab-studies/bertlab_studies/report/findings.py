"""Words for what a study found, and for what is wrong with it.

Differences are variant − baseline; those of shares are in percentage points, others in the units of
the measure. Signs are those of the measure; words say which is the better end where lower is.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bertlab_evaluations.clusters import counted, units
from bertlab_studies.report.comparison import LEVEL, Comparison
from bertlab_studies.report.multibootstrap import MultiBootstrap
from bertlab_studies.study_scores import Measure, StudyScores

NOISIER = (
    " If this study is twice as noisy as they were, about 7 % of such studies have a star by "
    "chance, not 5 %; if half as noisy, it shows less than on its own."
)
FEW_SEEDS = 3  # up to here the deviation itself is hardly known


def describe(comparison: Comparison, measure: Measure, other: str = "the baseline") -> str:
    """Return one sentence, without a full stop, on a variant against the baseline, or another.

    For example ``no difference shown (95 % CI −0.6 … +0.9 points; 5 seeds could have shown 1.4)``.
    """
    if comparison.decided is not comparison:
        return f"of the runs that learned: {describe(comparison.decided, measure, other)}"
    if comparison.difference is None or comparison.p is None:
        return f"cannot be tested: {_too_few(comparison)}"
    if comparison.is_constant:
        return _describe_constant(comparison, measure)
    digits = decimals(comparison, measure)
    interval = _interval(comparison, measure, digits)
    if comparison.p_adjusted is None:
        by = f"{signed(comparison.difference, measure, digits)}{_unit(measure)}"
        return f"{by} ({interval}), not one of the measures that decide"
    if comparison.significant:
        few = f"; few seeds: {_count(comparison)}" if min(comparison.runs) <= FEW_SEEDS else ""
        by = _direction(comparison.difference, measure, digits)
        return f"{by} ({interval}, {_p_of(comparison)}{few})"
    return _describe_nothing_shown(comparison, measure, interval, digits, other)


def _describe_nothing_shown(
    comparison: Comparison, measure: Measure, interval: str, digits: int, other: str
) -> str:
    if comparison.equivalent:
        within = _plain(comparison.margin or 0.0, measure, digits)
        p = format_p(comparison.p_equivalent or 0.0)
        return f"as good as {other}, within {within}{_unit(measure)} ({p}; {interval})"
    alone, after = comparison.p or 0.0, comparison.p_adjusted or 0.0
    could = _could_show(comparison, measure, digits)
    if alone <= LEVEL:
        uncorrected = f"{format_p(alone)} alone, " if comparison.family > 1 else ""
        interval = f"{interval}, {uncorrected}{_p_of(comparison)}"
    failed = " without the runs that failed" if after <= LEVEL else ""
    return f"no difference shown{failed} ({interval}; {could})"


def describe_rows(comparison: Comparison, measure: Measure) -> str:
    """Return one sentence, without a full stop, on the rows of the test set and the bootstrap."""
    percent = f"{100 * (comparison.row_share or 0.0):.0f} %"
    rows = comparison.rows or 0
    share = counted(comparison.cluster, comparison.clusters or rows, rows)
    share += f" are {percent} of the uncertainty"
    found = comparison.bootstrap
    if found is None:
        return share
    if found.low == found.high:
        return f"{share}; Multi-Bootstrap: the same in every draw"
    digits = decimals(found, measure)
    over = units(comparison.cluster or "row")
    narrow = f", too narrow with {min(found.seeds)} seeds" if min(found.seeds) <= FEW_SEEDS else ""
    interval = _interval(found, measure, digits)
    return f"{share}; Multi-Bootstrap over seeds and {over}: {interval}{narrow}"


def describe_failures(comparison: Comparison, measure: Measure, baseline: str) -> str:
    """Return one sentence, without a full stop, on runs that failed.

    How often they do is compared apart from the scores of the others. Where the star is about the
    others, the difference of all runs stands beside it, else that without the failed runs.
    """
    found, rest = comparison.failures, comparison.without_failed
    assert found is not None
    assert rest is not None
    before, after = (f"{n} of {of}" for n, of in zip(found.failed, found.runs, strict=True))
    test = f"Fisher {format_p(found.p)}"
    if found.p_adjusted is not None:
        test = f"Fisher {format_p(found.p_adjusted)}{_after_holm(comparison)}"
    said = [
        f"{after} runs failed (95 % CI {100 * found.low:.0f} … {100 * found.high:.0f} %),"
        f" of {baseline} {before} ({test})"
    ]
    if comparison.of_learned:
        said.append(f"with them: {_plainly(comparison, measure)}")
    else:
        said.append(f"without them: {_plainly(rest, measure)}")
    if found.trimmed is not None and found.p_trimmed is not None:
        by = signed(found.trimmed, measure, decimals(comparison, measure))
        said.append(f"trimmed means: {by}{_unit(measure)} ({format_p(found.p_trimmed)})")
    return "; ".join(said)


def _plainly(found: Comparison, measure: Measure) -> str:
    if found.p is None:
        return "nothing can be tested"
    digits = decimals(found, measure)
    by = f"{signed(found.difference or 0.0, measure, digits)}{_unit(measure)}"
    return f"{by} ({'no spread' if found.low is None else _interval(found, measure, digits)})"


def describe_earlier(
    scores: StudyScores, comparisons: Mapping[tuple[str, str], Comparison]
) -> Iterator[str]:
    """Yield a sentence on each measure that decides, if a study uses the noise of earlier ones."""
    paired = {name for (_, name), one in comparisons.items() if one.decided.paired}
    for measure in scores.measures if scores.earlier_file else ():
        if not measure.is_primary:
            continue
        known = scores.earlier.get(measure.name)
        if known is None:
            yield f"{measure.name}: {scores.earlier_file} has no earlier study of this kind."
            continue
        scale, unit = (100, " points") if measure.is_share else (1, "")
        used, ending = "counts as one more variant does", NOISIER
        if measure.name in paired:
            used, ending = "is not used: variants are compared seed by seed", ""
        yield (
            f"{measure.name}: the noise of {known.studies} earlier "
            f"{'study' if known.studies == 1 else 'studies'} in {scores.earlier_file} {used}: "
            f"deviation {scale * known.variance**0.5:.3g}{unit} (variance {known.variance:.3g}, "
            f"{known.freedom:g} degrees of freedom).{ending}"
        )


def describe_pairing(
    scores: StudyScores, comparisons: Mapping[tuple[str, str], Comparison]
) -> str | None:
    """Return a sentence on how far seeds move all variants together; None if it is not known."""
    known: dict[bool, dict[str, float]] = {True: {}, False: {}}
    primary = {measure.name for measure in scores.measures if measure.is_primary}
    for (_, name), one in comparisons.items():
        found = one.decided  # failed runs move together as no others do
        if name in primary and found.correlation is not None:
            known[found.paired][name] = found.correlation
    said = []
    for paired, words in ((True, "compared seed by seed"), (False, "not paired")):
        if known[paired]:
            each = (f"{name} {_rounded(value)}" for name, value in known[paired].items())
            said.append(f"{words}: {', '.join(each)}")
    return f"Correlation of variants over seeds; {'; '.join(said)}." if said else None


def _rounded(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def conclude(scores: StudyScores, comparisons: Mapping[tuple[str, str], Comparison]) -> str:
    """Return one sentence, with a full stop, on the whole study.

    Args:
        scores: what was found.
        comparisons: as `compare_study` returns them.
    """
    if scores.is_crossed:
        return (
            "Seeds are crossed: the study tells how much each part of a run moves a result, and "
            "tests no difference between variants."
        )
    measures = {measure.name: measure for measure in scores.measures if measure.is_primary}
    primary = {key: one for key, one in comparisons.items() if key[1] in measures}
    tested = {key: one for key, one in primary.items() if one.decided.p is not None}
    untested = len(primary) - len(tested)
    rest = f"; {untested} more cannot be tested" if untested else ""
    if not tested:
        return f"Nothing can be said yet: no comparison with {scores.baseline} can be tested."
    shown = [
        f"{variant} is {_by(one.decided, measures[name])} in {name}"
        + " (runs that learned)" * one.of_learned
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


def decimals(interval: Comparison | MultiBootstrap, measure: Measure) -> int:
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
    scale = 100 if measure.is_share else 1
    digits = -math.floor(math.log10(size * scale))
    digits = max(1, min(6, digits if measure.is_share else digits + 1))
    if interval.low is None or interval.high is None or interval.low * interval.high <= 0:
        return digits
    # an interval without 0 is not shown with an end at 0.0: −1.4 … −0.04
    near = min(abs(interval.low), abs(interval.high)) * scale
    while digits < 6 and not round(near, digits):
        digits += 1
    return digits


def signed(value: float, measure: Measure, digits: int) -> str:
    """Return a difference as ``−0.6`` or ``+0.9``; 0.0 has no sign. Shares in percentage points."""
    scaled = value * 100 if measure.is_share else value
    text = f"{scaled:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]  # "+0.0" -> "0.0"


def format_p(p: float) -> str:
    """Return ``p 0.21``, ``p 0.004`` or ``p < 0.001``; ``p 0.0503`` beside the level."""
    if p < 0.001:
        return "p < 0.001"
    digits = 2 if p >= 0.1 else 3
    if p != LEVEL and round(p, digits) == LEVEL:
        digits = 4
    return f"p {p:.{digits}f}"


def _describe_constant(comparison: Comparison, measure: Measure) -> str:
    difference, runs = comparison.difference or 0.0, _count(comparison)
    if difference == 0:
        return "the same in every seed"
    by = _direction(difference, measure, decimals(comparison, measure))
    found = f"{by} in each of {runs} seeds, with no spread"
    if comparison.p_adjusted is None:
        return f"{found}, not one of the measures that decide"
    prefix = "" if comparison.significant else "no difference shown: "
    test = "sign" if comparison.paired else "permutation"
    return f"{prefix}{found} ({test} test, {_p_of(comparison)})"


def _too_few(comparison: Comparison) -> str:
    before, after = comparison.runs
    if comparison.difference is None:
        return "no seed has values on both sides"
    word = "seed" if after == 1 else "seeds"
    return "1 seed" if before == after == 1 else f"{after} {word} against {before}"


def _count(comparison: Comparison) -> str:
    """Return the number of seeds: ``3``, or ``3 and 2`` of the baseline and the variant."""
    before, after = comparison.runs
    return str(before) if before == after else f"{before} and {after}"


def _could_show(comparison: Comparison, measure: Measure, digits: int) -> str:
    could = f"{_count(comparison)} seeds could have shown"
    if min(comparison.runs) <= FEW_SEEDS:
        could = f"few seeds: {_count(comparison)} could have shown"
    found = f"{could} {_plain(comparison.detectable or 0.0, measure, digits)}"
    if comparison.detectable_range is not None:
        low, high = (_plain(end, measure, digits) for end in comparison.detectable_range)
        found += f" ({low} … {high})"
    return found + _after_holm(comparison)


def _missing(scores: StudyScores, variant: str) -> list[str]:
    """Return a line for each set of seeds without values, naming measures only if they differ.

    Described measures that no seed has are of objectives that the variant lacks.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for measure in scores.measures:
        values = scores.cell(variant, measure).values
        missing = tuple(seed for seed in scores.seeds if seed not in values)
        if len(missing) == len(scores.seeds) and not measure.is_primary:
            continue  # a variant without NSP has no accuracy of it
        groups.setdefault(missing, []).append(measure.name)
    lines = []
    for missing, names in groups.items():
        where = variant if len(names) == len(scores.measures) else f"{variant}, {_listed(names)}"
        if len(missing) == len(scores.seeds):
            lines.append(f"{where}: no seed has a value")
        elif missing:
            verb = "is" if len(missing) == 1 else "are"
            left = f"{len(scores.seeds) - len(missing)} of {len(scores.seeds)} seeds left"
            lines.append(f"{where}: {_seeds(missing)} {verb} missing; {left}")
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


def _interval(interval: Comparison | MultiBootstrap, measure: Measure, digits: int) -> str:
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
