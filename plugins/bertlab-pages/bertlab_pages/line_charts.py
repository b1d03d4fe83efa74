"""Small charts of a page: SVG in the page's own colours, as wide as its place, with names above.

Drawn here and not by matplotlib, as a page that is written again and again beside a training must
cost it nothing: milliseconds, and no library to import.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from bertlab_pages.escaping import html_templates

_TEMPLATES = html_templates("bertlab_pages")
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 390, 8, 178  # of the plot, in a picture of 400 × 212
_MOST_POINTS = 300  # of a line
_FEW_POINTS = 12  # are drawn as dots, too
_MOST_HOVERS = 60  # of a line whose points say their value
_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Line:
    """A line of a chart, or points without one.

    Attributes:
        name: in the chart's key.
        xs: rising, of a line.
        ys: as many; what is not finite is left out.
        is_dashed: of a baseline.
        is_scatter: points alone.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    is_dashed: bool = False
    is_scatter: bool = False


def line_chart(
    title: str,
    lines: Sequence[Line],
    labels: tuple[str, str],
    percent: bool = False,
    square: tuple[float, float] | None = None,
    decades: bool = False,
) -> Markup | None:
    """Return a chart as HTML, or None if there is nothing to draw.

    Args:
        title: above it.
        lines: with finite points or without.
        labels: of the x and the y axis.
        percent: whether values are shares.
        square: both axes go from here to there, and a diagonal is drawn.
        decades: the x axis is logarithmic; xs are above 0.
    """
    if decades:
        lines = [replace(line, xs=[math.log10(x) for x in line.xs]) for line in lines]
    drawn = [(line, _points(line)) for line in lines]
    drawn = [(line, points) for line, points in drawn if points]
    if not drawn:
        return None
    xs = [x for _, points in drawn for x, _ in points]
    ys = [y for _, points in drawn for _, y in points]
    x_low, x_high = square or padded_range(xs)
    y_low, y_high = square or ((0.0, 1.0) if percent and max(ys) > 0.5 else padded_range(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (_RIGHT - _LEFT) * (x - x_low) / (x_high - x_low)
        down = _BOTTOM - (_BOTTOM - _TOP) * (y - y_low) / (y_high - y_low)
        return round(across, 1), round(down, 1)

    y_ticks = ticks(y_low, y_high)
    digits = digits_apart(y_ticks)
    shown = []
    for number, (line, points) in enumerate(drawn):
        at = [(*place(x, y), x, y) for x, y in points]
        every = max(1, len(at) // _MOST_HOVERS)
        dots = at if line.is_scatter else at[::-every]
        hover = f"{line.name}, {labels[0]}"
        shown.append(
            {
                "name": line.name,
                "color": number % 6,
                "dashed": line.is_dashed,
                "scatter": line.is_scatter,
                "hidden": not line.is_scatter and len(at) > _FEW_POINTS,
                "path": "" if line.is_scatter else " ".join(f"{x},{y}" for x, y, _, _ in at),
                "dots": [
                    (x, y, f"{hover} {_place(a, decades)}: {_value(b, percent, digits)}")
                    for x, y, a, b in dots
                ],
            }
        )
    x_ticks = ticks(x_low, x_high)
    if decades:
        x_ticks = [float(x) for x in range(math.ceil(x_low), math.floor(x_high) + 1)] or x_ticks
    html = _TEMPLATES.get_template("chart.html").render(
        title=title,
        labels=labels,
        lines=shown,
        plot=(_LEFT, _RIGHT, _TOP, _BOTTOM),
        x_ticks=[(place(x, y_low)[0], _place(x, decades)) for x in x_ticks],
        y_ticks=[(place(x_low, y)[1], _value(y, percent, digits)) for y in y_ticks],
        diagonal=(*place(x_low, y_low), *place(x_high, y_high)) if square else None,
    )
    return Markup(html)  # noqa: S704  the template escapes what it prints


def ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers: 0 to 0.9 → 0, 0.2, 0.4, 0.6, 0.8."""
    rough = (high - low) / 6
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def digits_apart(values: Sequence[float], least: int = 3) -> int:
    """Return the significant digits that tell values apart: 0.7011, 0.7012 → 4."""
    several = (n for n in range(least, 12) if len({f"{x:.{n}g}" for x in values}) == len(values))
    return next(several, least)


def _points(line: Line) -> list[tuple[float, float]]:
    found = [
        (float(x), float(y))
        for x, y in zip(line.xs, line.ys, strict=True)
        if math.isfinite(x) and math.isfinite(y) and max(abs(x), abs(y)) < 1e30
    ]
    every = 1 if line.is_scatter else -(-len(found) // _MOST_POINTS)
    # from the end, so that the last one is there
    return found[:: -max(1, every)][::-1]


def padded_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis of values, with some room; they differ."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    return (low if low == 0 else low - margin), high + margin


def _number(value: float, digits: int = 3) -> str:
    for size, prefix in _PREFIXES:
        if abs(value) >= size * 0.9999:
            return f"{value / size:.{max(digits, 4)}g}{prefix}"
    return f"{value:.{digits}g}"


def _place(x: float, decades: bool) -> str:
    return f"{10**x:.2g}" if decades else _number(x)


def _value(value: float, percent: bool, digits: int) -> str:
    return f"{100 * value:.{digits}g}%" if percent else _number(value, digits)
