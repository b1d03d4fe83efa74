"""What evaluations found, as one HTML page that needs no other file: tables and pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from bertlab.extend import is_among, write_text
from bertlab_evaluations.contract import Evaluation, EvaluationResult, ScoreGrid
from bertlab_evaluations.evaluation_output import page_file
from bertlab_evaluations.evaluation_scores import GroupScore
from bertlab_evaluations.evaluation_tables import figures_table, group_table, kinds_of, score_table
from bertlab_pages.charts import (
    MOST,
    HeatMap,
    Interval,
    group_chart,
    heat_maps,
    word_curves,
    word_panels,
)
from bertlab_pages.pictures import Picture, inline_svg, svg_of
from bertlab_pages.plot_axes import SETTINGS
from bertlab_pages.tables import PAGES, Grid
from bertlab_pages.word_curves import read_word_curves

_MOST_CELLS = 2500  # of a heat map; a larger grid is a table only
_MOST_ROWS = 500  # of a table of groups; the CSV file has all


@dataclass(frozen=True)
class Evaluated:
    """One evaluation and what it found.

    Attributes:
        name: of its figures.
        data: where its rows are.
        evaluation: with its settings.
        result: what it found.
        groups: the scores of all rows first, then those of the groups of each kind.
    """

    name: str
    data: str
    evaluation: Evaluation
    result: EvaluationResult
    groups: Sequence[GroupScore]

    @property
    def metric(self) -> str:
        """The metric that decides."""
        return self.evaluation.monitor[0]

    @property
    def share(self) -> bool:
        """Whether scores are shown in percent."""
        return is_among(self.metric, self.evaluation.shares)

    @property
    def figures(self) -> Grid:
        """The metrics over all rows."""
        return figures_table(self.evaluation, self.result, self.groups[0])

    def links(self) -> list[tuple[str, str]]:
        """Return name and address of each page that the evaluation itself has made."""
        names = [page_file(self.name, each) for each in self.result.pages]
        return [(name, f"./{quote(name)}") for name in names]


@dataclass(frozen=True)
class _Part:
    """A part of a section: a picture, a table, or both."""

    title: str
    caption: str = ""
    svg: Markup | None = None
    grid: Grid | None = None


def write_pages(folder: Path, source: str, evaluated: Sequence[Evaluated]) -> list[Path]:
    """Write ``NAME.html`` for each evaluation, and ``report.html`` with all if there are several.

    Args:
        folder: where the other files of the evaluations are; of ``NAME.words.csv``, if it is
            there, curves are drawn.
        source: the model, as the user named it.
        evaluated: at least one.

    Returns:
        The files; the page of all comes last.

    Raises:
        OSError: one cannot be written.
    """
    sections = {
        f"{each.name}.html": [(each, _parts(folder, each, number))]
        for number, each in enumerate(evaluated)
    }
    if len(evaluated) > 1:
        sections["report.html"] = [section for (section,) in sections.values()]
    template = PAGES.get_template("evaluations.html")
    for file, shown in sections.items():
        title = ", ".join(each.name for each, _ in shown)
        page = template.render(title=title, source=source, sections=shown)
        write_text(folder / file, page)
    return [folder / file for file in sections]


def _parts(folder: Path, found: Evaluated, number: int) -> list[_Part]:
    """Return the parts of a section; ``number`` makes the names in its pictures its own."""
    parts = []
    with mpl.rc_context(SETTINGS):
        drawn = (*_of_groups(found), *_of_grids(found), *_of_words(folder, found))
        for place, (title, caption, figure, grid) in enumerate(drawn):
            svg = None
            if figure is not None:
                picture = Picture(f"p{number}-{place}", caption, svg_of(figure))
                svg = inline_svg(picture)
            parts.append(_Part(title, caption, svg, grid))
    return parts


_Drawn = tuple[str, str, Figure | None, Grid | None]


def _of_groups(found: Evaluated) -> Iterator[_Drawn]:
    kinds = kinds_of(found.groups, _MOST_ROWS)
    for kind, groups in kinds.items():
        figure = None
        if len(groups) <= MOST:
            intervals = {each.group: Interval(each.mean, each.low, each.high) for each in groups}
            figure = group_chart(intervals, found.metric, found.share, found.evaluation.chance)
        caption = f"Mean and its 95 % interval.{_chance(found)}"
        yield f"By {kind}", caption, figure, group_table(found.evaluation, kind, groups)


def _of_grids(found: Evaluated) -> Iterator[_Drawn]:
    for grid in found.result.grids:
        figure = None
        if 0 < grid.values.size <= _MOST_CELLS:
            figure = heat_maps([_heat_map(grid)])
        unit = " In percent." if grid.share else ""
        caption = f"Colors go from the lowest to the highest of all values.{unit}"
        yield grid.title, caption, figure, score_table(grid)


def _heat_map(grid: ScoreGrid) -> HeatMap:
    def number(value: float) -> str:
        return f"{100 * value:.1f}" if grid.share else f"{value:.3f}"

    return HeatMap("", grid.rows, grid.columns, grid.values, number)


def _of_words(folder: Path, found: Evaluated) -> Iterator[_Drawn]:
    path = folder / f"{found.name}.words.csv"
    by_kind = read_word_curves(path) if path.is_file() else {}
    for title, curves in word_panels(by_kind).items():
        panels = {group: {found.name: curve} for group, curve in curves.items()}
        figure = word_curves(panels, [found.name], found.share, found.evaluation.chance)
        caption = (
            f"Mean {found.metric} of the checkpoints along the run, and a band: the 95 % "
            f"interval.{_chance(found)}"
        )
        if figure is not None:
            yield f"Against words seen{title}", caption, figure, None


def _chance(found: Evaluated) -> str:
    chance = found.evaluation.chance
    if chance is None:
        return ""
    return f" Dotted: chance, {f'{100 * chance:g} %' if found.share else f'{chance:g}'}."
