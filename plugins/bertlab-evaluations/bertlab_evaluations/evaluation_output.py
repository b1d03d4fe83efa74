"""What evaluations find, as printed tables and as files."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from bertlab.extend import (
    RESULTS_FILE,
    OutputError,
    Results,
    json_line,
    print_table,
    read_object,
    replacing,
    say,
    utf8,
    write_text,
)
from bertlab_evaluations.contract import EvaluationResult
from bertlab_evaluations.entries import EvaluationEntry
from bertlab_evaluations.evaluation_scores import GroupScore, cluster_notes
from bertlab_evaluations.evaluation_tables import MOST_COLUMNS, interval, shown, tables_of
from bertlab_pages.spreadsheets import spreadsheet_csv

_GROUP_COLUMNS = ("kind", "group", "rows", "mean", "low", "high", "clusters")


def print_evaluation(
    entry: EvaluationEntry, result: EvaluationResult, groups: Sequence[GroupScore]
) -> None:
    """Print the figures, the kinds of groups with few groups, narrow grids and the notes."""
    for table in tables_of(entry.name, entry.evaluation, result, groups):
        headings = ["\n".join(heading) for heading in table.grid.headings]
        print_table(table.title, table.grid.rows, headings, table.grid.figures)
    for number, grid in enumerate(result.grids, 1):
        if len(grid.columns) > MOST_COLUMNS:
            say(f"{entry.name}: {grid.title}: {_grid_file(entry.name, number)}")
    for note in (*result.notes, *cluster_notes(result)):
        say(f"{entry.name}: {note}")


def write_evaluation(
    folder: Path, name: str, result: EvaluationResult, groups: Sequence[GroupScore]
) -> None:
    """Write an evaluation's rows, groups, grids and pages in place of those of an earlier one."""
    with replacing(folder / f"{name}.rows.jsonl") as file:
        for row in _rows(result):
            file.write(utf8(json_line(row)))
    values = [vars(each).values() for each in groups]
    write_text(folder / f"{name}.groups.csv", spreadsheet_csv(_GROUP_COLUMNS, values))
    for number, grid in enumerate(result.grids, 1):
        rows = [(row, *values) for row, values in zip(grid.rows, grid.values.tolist(), strict=True)]
        text = spreadsheet_csv((grid.title, *grid.columns), rows)
        write_text(folder / _grid_file(name, number), text)
    for number in count(len(result.grids) + 1):  # of an earlier evaluation that had more
        if not (left := folder / _grid_file(name, number)).is_file():
            break
        left.unlink()
    for file_name, text in result.pages.items():
        write_text(folder / page_file(name, file_name), text)


def page_file(name: str, page: str) -> str:
    """Return the file of a page that an evaluation itself has made.

    Args:
        name: of the evaluation.
        page: as the evaluation calls it; only letters, digits, ``_``, ``-`` and ``.`` are kept.
    """
    return f"{name}.{re.sub(r'[^A-Za-z0-9_.-]+', '_', Path(page).name)[-100:].lstrip('.')}"


def _grid_file(name: str, number: int) -> str:
    return f"{name}.grid-{number}.csv"


def _rows(result: EvaluationResult) -> Iterator[dict[str, Any]]:
    for number, score in enumerate(result.scores.tolist()):
        row: dict[str, Any] = {"row": number, "score": None if math.isnan(score) else score}
        if result.clusters:
            row["cluster"] = result.clusters[number]
        for more in (result.groups, result.details):
            row |= {name: _plain(values[number]) for name, values in more.items()}
        yield row


def _plain(value: float | int | str) -> float | int | str | None:
    """Return a value as JSON has it: NaN is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def earlier_results(folder: Path) -> Results:
    """Return the figures that other evaluations of the model have written into a folder.

    Raises:
        OutputError: the file is damaged.
    """
    file = folder / RESULTS_FILE
    if not file.is_file():
        return {}
    try:
        found: Results = read_object(file)
    except (ValueError, TypeError) as error:
        raise OutputError(f"{file}: damaged: {error}; remove it, or give another output") from None
    return found


Curve = Mapping[int, Sequence[GroupScore]]  # the groups, all rows first, by words seen


def print_curve(entry: EvaluationEntry, curve: Curve) -> None:
    """Print the score of all rows by the number of words seen."""
    evaluation, (metric, _) = entry.evaluation, entry.evaluation.monitor
    cells = [
        (f"{words:,}", shown(evaluation, metric, groups[0].mean), interval(evaluation, groups[0]))
        for words, groups in curve.items()
    ]
    print_table(f"{entry.name} along the run", cells, ("words", metric, "95 %"), figures=3)


def write_curve(path: Path, curve: Curve) -> None:
    """Write the score of each group by the number of words seen."""
    rows = [(words, *vars(group).values()) for words, groups in curve.items() for group in groups]
    write_text(path, spreadsheet_csv(("words", *_GROUP_COLUMNS), rows))
