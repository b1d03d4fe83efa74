"""Kinds of study in which a test says less than 5 %, or less than so many runs seem to: named.

The figures are those of ``benchmarks/figures/study_calibration_meaning.md``. A line is printed
where a study is of the kind, and not where it is only near it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from bertlab_studies.report.comparison import LEVEL, Comparison
from bertlab_studies.report.contrast_noise import draw_test
from bertlab_studies.report.failed_runs import failed_runs
from bertlab_studies.report.failures import (
    UNSTABLE,
    count_runs,
    is_established,
    is_unstable,
    without,
)
from bertlab_studies.report.findings import FEW_SEEDS, decimals, format_p, signed
from bertlab_studies.report.two_groups import one_group_p
from bertlab_studies.study_scores import Measure, StudyScores

LIMITED = 0.3  # share of the freedom of few runs in that of few against many, which is named
MANY_SKEWED = 25  # seeds at which skewed noise does little harm; named up to twice as many
ENOUGH_GROUPED = 7  # seeds at which groups of runs do no harm
MANY_VARIANTS = 3  # from which groups that nobody sees do harm with few seeds

Comparisons = Mapping[tuple[str, str], Comparison]


def conditions(scores: StudyScores, comparisons: Comparisons) -> list[str]:
    """Return a line for each condition that a study's stars and figures rest on.

    Args:
        scores: what was found.
        comparisons: as ``compare_study`` returns them.
    """
    if scores.is_crossed:
        return []
    return [
        *_unstable(scores),
        *_few_against_many(scores, comparisons),
        *_assumed(scores, comparisons),
        *_two_groups(scores, comparisons),
    ]


def _unstable(scores: StudyScores) -> Iterator[str]:
    """Yield a line for each variant of whose runs many failed."""
    for measure in _primary(scores):
        failed = failed_runs(scores, measure)
        for variant, seeds in failed.items():
            cell = scores.cell(variant, measure)
            if not is_unstable(seeds, cell):
                continue
            star = "a star needs the difference with and without these runs"
            if is_established(failed, scores, measure, [variant]):
                star = "a star is about the runs that learned"
            yield (
                f"{variant}, {measure.name}: unstable: {len(seeds)} of {count_runs(seeds, cell)} "
                f"runs failed ({100 * UNSTABLE:.0f} % or more); its mean is mostly a matter of how "
                f"many do, so {star}, and rates of failure are compared apart (Fisher)"
            )


def _few_against_many(scores: StudyScores, comparisons: Comparisons) -> Iterator[str]:
    """Yield a line for each comparison of which the few runs of one side are the limit."""
    measures = {measure.name: measure for measure in _primary(scores)}
    for (variant, name), found in comparisons.items():
        one = found.decided
        noise = one.noise
        if name not in measures or noise is None or not one.family or one.paired:
            continue
        if noise.few_against_many[1] < LIMITED:
            continue
        few, many = sorted(one.runs)
        known = (many - 1,) * len(noise.shares) + noise.known[len(noise.shares) :]
        as_many = replace(noise, known=known, shares=(1 / many,) * len(noise.shares))
        could = draw_test(as_many, LEVEL / one.family).detectable
        yield (
            f"{variant}, {name}: {few} runs against {many}: tested almost as if both sides had "
            f"{few}, since noise of {few} runs is hardly known; it could have shown "
            f"{_shown(one.detectable or 0.0, one, measures[name])}, and with {many} runs of each "
            f"{_shown(could, one, measures[name])}"
        )


def _assumed(scores: StudyScores, comparisons: Comparisons) -> Iterator[str]:
    """Yield what stars rest on that so few seeds cannot check."""
    stars = [one.decided for one in comparisons.values() if one.significant]
    if not stars:
        return
    seeds = min(min(one.runs) for one in stars)
    variants = len(scores.variants)
    if variants == 2 and seeds < 2 * MANY_SKEWED:
        share = "up to 13" if seeds < MANY_SKEWED else "about 7"
        counted = "seeds" if all(one.runs[0] == one.runs[1] for one in stars) else "runs of one"
        yield (
            f"two variants and {seeds} {counted}: if results are skewed and one variant is far "
            f"noisier than the other, {share} % of such studies have a star by chance, not 5 %"
            + f"; {MANY_SKEWED} seeds keep 7 %"
            * (seeds < MANY_SKEWED)
        )
    few, many = min((sorted(one.runs) for one in stars), key=lambda runs: runs[0] / runs[1])
    if few == FEW_SEEDS and many >= 2 * few:  # with two, the few are the limit
        yield (
            f"{few} runs against {many}: if the few are far noisier, up to 7 % of such studies "
            "have a star by chance, not 5 %; five runs keep 6 %"
        )
    if variants >= MANY_VARIANTS and seeds <= FEW_SEEDS:
        yield (
            f"{seeds} seeds: if one variant is far noisier than the others, or runs of all end in "
            "two groups that are too close to be told apart (ten deviations or less), up to 11 % "
            "of such studies have a star by chance, not 5 %; five seeds keep 7 %, seven 6 %"
        )


def _two_groups(scores: StudyScores, comparisons: Comparisons) -> Iterator[str]:
    """Yield a line if the runs of a study with a star seem to end in two groups.

    With fewer seeds this cannot be told, and :func:`_assumed` names it beside each star.
    """
    stars = [one.decided for one in comparisons.values() if one.significant]
    seeds = min((min(one.runs) for one in stars), default=0)
    if not FEW_SEEDS < seeds < ENOUGH_GROUPED or len(scores.variants) < MANY_VARIANTS:
        return
    paired = {name for (_, name), one in comparisons.items() if one.decided.paired}
    learned = []
    for measure in _primary(scores):
        failed = failed_runs(scores, measure) if measure.name not in paired else {}
        cells = (without(scores.cell(name, measure), failed[name]) for name in failed)
        learned.append([np.array(list(cell.values.values())) for cell in cells])
    p = one_group_p(learned)
    if p <= LEVEL:
        yield (
            f"{seeds} seeds: the runs of a variant look like two groups ({format_p(p)} if they "
            "were one), too close together to tell which failed: about 7 % of such studies have a "
            f"star by chance, not 5 %; {ENOUGH_GROUPED} seeds keep 6 %"
        )


def _primary(scores: StudyScores) -> list[Measure]:
    return [measure for measure in scores.measures if measure.is_primary]


def _shown(value: float, found: Comparison, measure: Measure) -> str:
    """Return ``1.2 points``, or ``0.03``."""
    number = signed(value, measure, decimals(found, measure)).removeprefix("+")
    return f"{number} points" if measure.is_share else number
