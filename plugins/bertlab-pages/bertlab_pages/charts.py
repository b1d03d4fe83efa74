"""Charts of scores by group: heat maps, means with intervals, curves against words seen."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from bertlab_pages.pictures import hover
from bertlab_pages.plot_axes import (
    GRAY,
    INK,
    PANELS,
    add_legend,
    label_of,
    log_axis,
    panels_of,
    percent_axis,
    printable,
    style_of,
    thin_line,
)
from bertlab_pages.word_curves import WordCurve

FloatArray = npt.NDArray[np.float64]
FEWEST, MOST = 2, 40  # groups of a chart: one has nothing beside it, more cannot be read
_CELL_WIDTH, _CELL_HEIGHT = 0.55, 0.3  # inches
_SLANT = 40  # degrees, of the names above a heat map


@dataclass(frozen=True)
class HeatMap:
    """Values by two things, drawn as colors with the numbers in them.

    Attributes:
        title: what is drawn; may be empty.
        rows: names of the R rows.
        columns: names of the C columns.
        values: ``(R, C)`` float64; NaN where there is none, which is left empty.
        number: writes a value.
        better: of differences, whose colors part at zero: 1 if higher is better (blue), −1 if lower
            is; 0 of plain scores.
        hint: what browsers show at a cell, by its row and column; None for nothing.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: FloatArray
    number: Callable[[float], str]
    better: int = 0
    hint: Callable[[int, int], str] | None = None


def heat_maps(maps: Sequence[HeatMap]) -> Figure:
    """Draw heat maps below each other; names of columns stand above the first one.

    Args:
        maps: at least one, all with the same columns.
    """
    columns = maps[0].columns
    lines = [max(1.0, sum(1 + label_of(row).count("\n") for row in each.rows)) for each in maps]
    names = [label_of(row) for each in maps for row in each.rows]
    widest = max(len(line) for name in names for line in name.splitlines() or [""])
    # letters are about 0.075 inches wide; a slanted name is as high as its length times the sine
    slanted = 0.075 * max(map(len, columns))
    top = 0.3 + slanted * math.sin(math.radians(_SLANT))
    overhang = slanted * math.cos(math.radians(_SLANT))
    figure = Figure(
        figsize=(
            0.3 + 0.075 * widest + _CELL_WIDTH * len(columns) + overhang,
            top + sum(0.35 + _CELL_HEIGHT * each for each in lines),
        ),
        layout="constrained",
    )
    panels = figure.subplots(len(maps), 1, squeeze=False, height_ratios=lines)
    for number, (axes, each) in enumerate(zip(panels.flat, maps, strict=True)):
        _heat_map(axes, each, with_columns=number == 0)
    return figure


def _heat_map(axes: Axes, drawn: HeatMap, with_columns: bool) -> None:
    values = np.ma.masked_invalid(drawn.values)
    colors, scale = _colors(drawn, values)
    # paths, no image: an image would be a file of its own, which pages do not load
    axes.pcolormesh(values, cmap=colors, norm=scale, edgecolors=INK, linewidth=0.3)
    for (row, column), value in np.ndenumerate(drawn.values):
        if math.isfinite(value):
            red, green, blue, _ = colors(scale(value))
            # the brightness that people see (Rec. 709); black is better read from 0.45 on
            ink = "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "white"
            place = (column + 0.5, row + 0.5)
            text = drawn.number(value)
            cell = axes.annotate(text, place, ha="center", va="center", color=ink, fontsize=8)
            if drawn.hint is not None:
                hover(cell, drawn.hint(row, column))
    axes.invert_yaxis()
    axes.set_yticks(np.arange(len(drawn.rows)) + 0.5, [label_of(row) for row in drawn.rows])
    labels = [printable(column) for column in drawn.columns] if with_columns else []
    axes.set_xticks(np.arange(len(labels)) + 0.5, labels)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for label in axes.get_xticklabels():
        label.set(rotation=_SLANT, ha="left", va="bottom", rotation_mode="anchor")
    axes.spines[:].set_visible(False)
    if drawn.title:
        axes.set_title(printable(drawn.title), loc="left")


def _colors(drawn: HeatMap, values: Any) -> tuple[Any, Normalize]:  # noqa: ANN401  masked array
    """Return a map to colors that color-blind readers tell apart, and the scale before it."""
    if not values.count():
        return mpl.colormaps["viridis"], Normalize(0, 1)
    if drawn.better:
        # the same strength on both sides of zero
        most = float(np.abs(values).max()) or 1.0
        return mpl.colormaps["RdBu" if drawn.better > 0 else "RdBu_r"], Normalize(-most, most)
    return mpl.colormaps["viridis"], Normalize(float(values.min()), float(values.max()))


@dataclass(frozen=True)
class Interval:
    """A score and how far it may be off: a point of a chart.

    Attributes:
        mean: in the middle; NaN where there is none.
        low: lower end; NaN where it is unknown.
        high: upper end.
    """

    mean: float
    low: float
    high: float


def group_chart(
    groups: Mapping[str, Interval], title: str, share: bool, chance: float | None
) -> Figure:
    """Draw a point and its interval for each group, from the top down.

    Args:
        groups: by name.
        title: of the axis of scores.
        share: scores are shown in percent.
        chance: drawn as a dotted line.
    """
    names = [label_of(name) for name in groups]
    height = 0.6 + sum(0.14 + 0.15 * (1 + name.count("\n")) for name in names)
    figure, (axes,) = panels_of(1, height)
    style = style_of(0) | {"linestyle": ""}
    for row, each in enumerate(groups.values()):
        axes.hlines(row, each.low, each.high, color=style["color"], linewidth=1.4)
        axes.plot(each.mean, row, **style)
    _chance_line(axes.axvline, chance)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(printable(title))
    if share:
        percent_axis(axes.xaxis)
    axes.grid(visible=True, axis="x")
    return figure


Curves = TypeVar("Curves")


def word_panels(
    by_kind: Mapping[str, Mapping[str, Curves]],
) -> dict[str, dict[str | None, Curves]]:
    """Return the panels of each picture of curves: all rows (None), then the groups of a kind.

    Args:
        by_kind: curves by kind and group; that of all rows is ``by_kind["all"][""]``.

    Returns:
        By what is said of the picture: ``", by phenomenon"``, or ``""`` of all rows alone, if there
        is no kind with few enough groups.
    """
    if "all" not in by_kind:
        return {}
    every: dict[str | None, Curves] = dict.fromkeys([None], by_kind["all"][""])
    found = {
        f", by {kind}": {**every, **groups}
        for kind, groups in by_kind.items()
        if kind != "all" and FEWEST <= len(groups) <= MOST
    }
    return found or {"": every}


def word_curves(
    panels: Mapping[str | None, Mapping[str, WordCurve]],
    styles: Sequence[str],
    share: bool,
    chance: float | None,
) -> Figure | None:
    """Draw a panel for each group, all on the same axes, with a curve for each variant.

    Args:
        panels: curves by variant, by group; that of None is of all rows.
        styles: all variants; the place of one decides how its curve looks. One has no legend.
        share: scores are shown in percent.
        chance: drawn as a dotted line.

    Returns:
        None where no curve has two points.
    """
    every = [band for curves in panels.values() for band in curves.values()]
    words = {each for band in every for each in band.words if len(band.words) > 1}
    if not words:
        return None
    figure, axes_of = panels_of(len(panels), height=1.8, shared_y=True)
    for axes, (group, curves) in zip(axes_of, panels.items(), strict=True):
        for variant, band in curves.items():
            number = styles.index(variant)
            for run, (seen, scores) in band.runs.items() if len(band.runs) > 1 else ():
                (line,) = axes.plot(seen, scores, **thin_line(number))
                last = f"{100 * scores[-1]:.1f} %" if share else f"{scores[-1]:.3f}"
                hover(line, f"{variant}, {run}: {last} at {seen[-1]:,} words")
            style = style_of(number) | {"markersize": 3}
            label = label_of(variant)
            axes.plot(band.words, band.values, label=label, **style)
            color = style["color"]
            axes.fill_between(band.words, band.low, band.high, color=color, alpha=0.2, linewidth=0)
        _chance_line(axes.axhline, chance)
        axes.set_title("all rows" if group is None else label_of(group))
        log_axis(axes, min(words), max(words))
        axes.grid(visible=True)
        if share:
            percent_axis(axes.yaxis)
    for lowest in axes_of[-PANELS:]:
        lowest.set_xlabel("words seen")
    if len(styles) > 1:
        add_legend(figure, axes_of)
    return figure


def _chance_line(line: Callable[..., object], chance: float | None) -> None:
    if chance is not None:
        line(chance, color=GRAY, linestyle=":", linewidth=1.4)
