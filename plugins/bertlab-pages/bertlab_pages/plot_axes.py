"""How all pictures of a report look: panels, colors, labels, legend."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter

INK = "#24292f"  # of all text and axes; the page puts its own in its place

# Okabe and Ito's, told apart by color-blind readers, without those lost on white or black ground
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_LINES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GRAY = "#8c959f"
PANELS = 3  # beside each other, at most
_LABEL = 28  # characters in a line of a row's name
SETTINGS: Any = {
    "svg.hashsalt": "bertlab",  # else its ids are random
    "svg.fonttype": "none",  # text stays text: it can be searched, and read aloud
    "pdf.fonttype": 42,  # TrueType, which journals ask for
    "text.parse_math": False,  # a dollar in a name is a dollar
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRAY,
    "grid.alpha": 0.3,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
}


def panels_of(number: int, height: float, shared_y: bool = False) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, in rows of at most three.

    Args:
        number: of panels.
        height: inches of each.
        shared_y: whether those of a row have the y axis in common.
    """
    columns = min(number, PANELS)
    rows = -(-number // columns)  # rounded up
    width = 1.2 + 2.4 * max(columns, 2)
    figure = Figure(figsize=(width, height * rows + 0.3))
    figure.set_layout_engine("constrained", hspace=0.06)  # a title is not a label of what is above
    grid = figure.subplots(rows, columns, squeeze=False, sharey=shared_y)
    for unused in grid.flat[number:]:
        figure.delaxes(unused)
    return figure, list(grid.flat[:number])


def style_of(number: int) -> dict[str, Any]:
    """Return color, marker and line of the curve of a number: matplotlib's keywords."""
    return {
        "color": _COLORS[number % len(_COLORS)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": _LINES[number % len(_LINES)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }


def thin_line(number: int) -> dict[str, Any]:
    """Return the look of a single run's curve behind that of a number: matplotlib's keywords."""
    style = style_of(number)
    thin = {"alpha": 0.45, "linewidth": 0.7, "marker": ".", "markersize": 2.5}
    return style | thin | {"linestyle": "-"}


def point_style(number: int) -> dict[str, Any]:
    """Return the look of a single run's point beside that of a number: matplotlib's keywords."""
    point = {"alpha": 0.7, "linestyle": "", "markersize": 4, "markeredgewidth": 0}
    return style_of(number) | point


def log_axis(axes: Axes, low: float, high: float) -> None:
    """Make the x axis logarithmic, with room beside the lowest and the highest value."""
    axes.set_xscale("log")
    margin = (high / low) ** 0.15  # a factor, as the axis is logarithmic
    axes.set_xlim(low / margin, high * margin)
    if high / low < 20:  # too few powers of ten to read the axis by
        axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def percent_axis(axis: Axis) -> None:
    """Show shares on an axis in percent."""
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")


def add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Name the curves once, below all panels."""
    entries = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    inches = 0.7 + 0.08 * max(len(line) for entry in entries for line in entry.splitlines())
    columns = min(len(entries), max(1, int(figure.get_figwidth() / inches)))
    lines = -(-len(entries) // columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * lines)
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False
    )


def label_of(name: str) -> str:
    """Return a name in lines that leave room for the panels."""
    return fill(printable(name), _LABEL)


def printable(text: str, longest: int = 80) -> str:
    """Return text without what an SVG must not contain, and that matplotlib does not hide.

    Args:
        text: a name.
        longest: characters that are shown; of more the middle is left out, so that names leave
            room for what is drawn.
    """
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}…{text[-half:]}"
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return f" {clean}" if clean.startswith("_") else clean  # a legend leaves out _names
