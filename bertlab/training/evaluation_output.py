"""What evaluations find, as printed tables and as files."""

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertlab.api.evaluation import EvaluationResult, ScoreGrid
from bertlab.checkpoints.run_directory import RESULTS
from bertlab.config.evaluations import EvaluationEntry
from bertlab.errors import OutputError
from bertlab.files import replacing, write_text
from bertlab.training.console import print_table
from bertlab.training.evaluation_scores import GroupScore
from bertlab.training.results import Results, is_share, show

_MOST_GROUPS = 20  # shown on the screen; the file has all
_GROUP_COLUMNS = ("kind", "group", "rows", "mean", "low", "high")


def print_evaluation(
    entry: EvaluationEntry, result: EvaluationResult, groups: Sequence[GroupScore]
) -> None:
    """Print the figures, the kinds of groups with few groups, the grids and the notes."""
    name, (metric, _) = entry.name, entry.evaluation.monitor
    for kind in result.groups:
        chosen = [each for each in groups if each.kind == kind]
        if 1 < len(chosen) <= _MOST_GROUPS:
            cells = [(each.group, str(each.rows), *_shown(metric, each)) for each in chosen]
            headings = (kind, "rows", metric, "95 % over rows")
            print_table(f"{name} by {kind}", cells, headings, figures=3)
    for grid in result.grids:
        _print_grid(name, grid)
    all_rows = groups[0]
    rows = []
    for each, value in result.metrics.items():
        interval = _shown(metric, all_rows)[1] if each == metric else ""
        rows.append((each, _show(each, metric, value), interval))
    print_table(f"{name}: {all_rows.rows:,} rows", rows, ("metric", "value", "95 %"), figures=2)
    for note in result.notes:
        sys.stdout.write(f"{name}: {note}\n")


def _shown(metric: str, group: GroupScore) -> tuple[str, str]:
    return (
        show(metric, group.mean),
        f"{show(metric, group.low)} to {show(metric, group.high)}",
    )


def _show(name: str, monitor: str, value: float) -> str:
    # ties is a share as the accuracy is
    return f"{value:.1%}" if is_share(monitor) and name == "ties" else show(name, value)


def _print_grid(name: str, grid: ScoreGrid) -> None:
    def cell(value: float) -> str:
        if math.isnan(value):
            return ""
        return f"{value:.1%}" if grid.share else f"{value:.3f}"

    rows = [
        (row, *(cell(value) for value in values))
        for row, values in zip(grid.rows, grid.values.tolist(), strict=True)
    ]
    print_table(f"{name}: {grid.title}", rows, ("", *grid.columns), figures=len(grid.columns))


def write_evaluation(
    folder: Path, name: str, result: EvaluationResult, groups: Sequence[GroupScore]
) -> None:
    """Write an evaluation's rows, groups, grids and pages into a folder."""
    with replacing(folder / f"{name}.rows.jsonl") as file:
        for row in _rows(result):
            file.write(f"{json.dumps(row, ensure_ascii=False)}\n".encode())
    values = [vars(each).values() for each in groups]
    _write_table(folder / f"{name}.groups.csv", _GROUP_COLUMNS, values)
    for number, grid in enumerate(result.grids, 1):
        rows = [(row, *values) for row, values in zip(grid.rows, grid.values.tolist(), strict=True)]
        _write_table(folder / f"{name}.grid-{number}.csv", (grid.title, *grid.columns), rows)
    for file_name, text in result.pages.items():
        write_text(folder / f"{name}.{Path(file_name).name}", text)


def _rows(result: EvaluationResult) -> Iterator[dict[str, Any]]:
    for number, score in enumerate(result.scores.tolist()):
        row: dict[str, Any] = {"row": number, "score": None if math.isnan(score) else score}
        for more in (result.groups, result.details):
            row |= {name: _plain(values[number]) for name, values in more.items()}
        yield row


def _plain(value: float | int | str) -> float | int | str | None:
    """Return a value as JSON has it: NaN is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_table(path: Path, headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(headings)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def earlier_results(folder: Path) -> Results:
    """Return the figures that other evaluations of the model have written into a folder.

    Raises:
        OutputError: the file is damaged.
    """
    file = folder / RESULTS
    if not file.is_file():
        return {}
    try:
        found: Results = dict(json.loads(file.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise OutputError(f"{file}: damaged: {error}; remove it, or give another output") from None
    return found


Curve = Mapping[int, Sequence[GroupScore]]  # the groups, all rows first, by words seen


def print_curve(entry: EvaluationEntry, curve: Curve) -> None:
    """Print the score of all rows by the number of words seen."""
    metric, _ = entry.evaluation.monitor
    cells = [(f"{words:,}", *_shown(metric, groups[0])) for words, groups in curve.items()]
    print_table(f"{entry.name} along the run", cells, ("words", metric, "95 %"), figures=3)


def write_curve(path: Path, curve: Curve) -> None:
    """Write the score of each group by the number of words seen."""
    rows = [(words, *vars(group).values()) for words, groups in curve.items() for group in groups]
    _write_table(path, ("words", *_GROUP_COLUMNS), rows)
