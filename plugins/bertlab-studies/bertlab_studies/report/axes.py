"""What each axis of a factorial study does: main effects of its levels, and interactions.

A study whose variants are all combinations of axes answers more than its comparisons with one
baseline do: half of its runs have one level of an axis and half the other, so the effect of the
axis rests on all of them. An effect is a weighted sum of variants' means, tested as a difference is
(:func:`~bertlab_studies.report.statistics.contrast`).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from bertlab_pages.tables import Grid, TitledGrid
from bertlab_studies.report.columns import MIXED, SHOWN
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.difference_table import DIFFERENCE, figures
from bertlab_studies.report.seed_noise import Weights
from bertlab_studies.report.statistics import after_holm_and_looks, compare_contrasts
from bertlab_studies.study_scores import StudyScores

_LEGEND = (
    "Effect of a level: the mean of all variants that have it − the mean of all that have the "
    "first level of the axis, over the combinations of the other axes. × an interaction: how much "
    "larger the effect of one axis is at the second level of the other than at its first. Where it "
    "is not 0, an effect is the average of different ones. p: after Holm over this table, which is "
    "a family of its own: the comparisons with the baseline do not count in it, nor it in theirs. "
    f"The test is that of the differences to the baseline. {SHOWN} shown at 5 %."
)
_COLUMNS = DIFFERENCE[2:6]  # difference, interval, p, could show


@dataclass(frozen=True)
class Effect:
    """A weighted sum of variants' means that tells what one axis does, or two together.

    Attributes:
        axis: its name; ``A × B`` of an interaction.
        level: ``level against first level``; of an interaction, the second level of both.
        weights: by variant; they add up to 0.
        comparisons: by name of the primary measure, after Holm over all effects and measures.
    """

    axis: str
    level: str
    weights: Weights
    comparisons: Mapping[str, Comparison] = field(default_factory=dict)


def effects_of_axes(scores: StudyScores) -> list[Effect]:
    """Test the effects of a study with two or more axes, in each primary measure.

    Args:
        scores: what was found.

    Returns:
        Main effects in the order of the axes, then interactions of two axes that have two levels
        each. Empty if variants are not all combinations of two axes or more.

    Raises:
        DataError: predictions of variants are of different rows.
    """
    effects = list(_effects(scores))
    if not effects:
        return []
    wanted = {f"{each.axis}: {each.level}": each.weights for each in effects}
    found = {
        (name, measure.name): one
        for measure in scores.measures
        if measure.is_primary
        for name, one in compare_contrasts(scores, measure, wanted).items()
    }
    found = after_holm_and_looks(found, scores.looks)
    return [
        Effect(
            each.axis,
            each.level,
            each.weights,
            {measure: one for (key, measure), one in found.items() if key == name},
        )
        for name, each in zip(wanted, effects, strict=True)
    ]


def axis_tables(scores: StudyScores) -> list[TitledGrid]:
    """Return the table of the effects of axes, if there are two axes or more."""
    effects = effects_of_axes(scores)
    if not effects:
        return []
    rows = []
    for effect in effects:
        mark = MIXED * any(scores.variants[name].is_mixed for name in effect.weights)
        for measure in scores.measures:
            if measure.is_primary:
                cells = figures(effect.comparisons[measure.name], measure)[: len(_COLUMNS)]
                unit = ", points" if measure.is_share else ""
                names = (effect.axis, effect.level + mark, measure.name + unit)
                rows.append((*names, *cells))
    headings = (("axis",), ("effect",), ("measure",), *_COLUMNS)
    return [TitledGrid("Effects of the axes", Grid(headings, tuple(rows), len(_COLUMNS)), _LEGEND)]


def _effects(scores: StudyScores) -> Iterator[Effect]:
    """Yield effects with their weights, none tested yet."""
    levels = {name: found.levels for name, found in scores.variants.items()}
    axes = _axes(levels)
    if len(axes) < 2 or len(levels) != math.prod(map(len, axes.values())):
        return
    # 2 × 3 variants: each level of the first axis is in 3 of them
    for axis, (first, *others) in axes.items():
        share = len(axes[axis]) / len(levels)
        for level in others:
            signs = {name: (of[axis] == level) - (of[axis] == first) for name, of in levels.items()}
            weights = {name: share * sign for name, sign in signs.items() if sign}
            yield Effect(axis, f"{level} against {first}", weights)
    two = [axis for axis, found in axes.items() if len(found) == 2]
    for one, other in combinations(two, 2):
        seconds = axes[one][1], axes[other][1]
        # 2 × 2 variants: (1, 1) 1, (1, 2) -1, (2, 1) -1, (2, 2) 1
        signs = {
            name: 1 if (of[one] == seconds[0]) == (of[other] == seconds[1]) else -1
            for name, of in levels.items()
        }
        weights = {name: 4 / len(levels) * sign for name, sign in signs.items()}
        yield Effect(f"{one} × {other}", f"{seconds[0]} × {seconds[1]}", weights)


def _axes(levels: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the levels of each axis that has several, in the order of the study."""
    found: dict[str, dict[str, None]] = {}  # dicts as sets that keep their order
    for of_variant in levels.values():
        for axis, level in of_variant.items():
            found.setdefault(axis, {})[level] = None
    return {axis: list(each) for axis, each in found.items() if len(each) > 1}
