"""Evaluates a model without training it: rows → evaluation → figures → files."""

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from bertlab.api.evaluation import EvaluatedModel, EvaluationResult, FloatArray, ScoreGrid
from bertlab.api.examples import Example
from bertlab.checkpoints.pretrained_model import PretrainedModel, load
from bertlab.checkpoints.run_directory import MANIFEST, RESULTS, manifest
from bertlab.config.evaluations import EvaluationEntry
from bertlab.data.examples.source import read_all_rows
from bertlab.errors import DataError, PluginError
from bertlab.files import explain_failed_write, replacing, write_json, write_text
from bertlab.plugins.index import installed
from bertlab.training.console import print_table
from bertlab.training.results import Results, is_share, show

_LEVEL = 0.95
_MOST_GROUPS = 20  # shown on the screen; the file has all


@dataclass(frozen=True)
class GroupScore:
    """The mean score of a group of rows.

    Attributes:
        kind: of group: ``phenomenon``.
        group: ``island_effects``; empty for all rows.
        rows: that were scored.
        mean: of their scores.
        low: lower end of the 95 % interval over rows: what other rows of the kind might give.
        high: its upper end.
    """

    kind: str
    group: str
    rows: int
    mean: float
    low: float
    high: float


def read_entry_rows(entry: EvaluationEntry) -> list[Example]:
    """Return the rows that an evaluation asks for.

    Raises:
        DataError: they cannot be read, or a column is missing.
    """
    wanted = entry.evaluation.columns
    return read_all_rows(entry.data, entry.columns, wanted, entry.format, entry.split)


def evaluate(
    model: EvaluatedModel, entry: EvaluationEntry, rows: Sequence[Example]
) -> EvaluationResult:
    """Score a model by the rows of an evaluation; nothing is trained.

    Raises:
        DataError: a row cannot be used, or none could be scored.
        EvaluationError: the model has not what is scored.
        PluginError: the result is not as the contract has it.
    """
    # what an evaluation draws must not change what a training run draws after it
    with torch.no_grad(), torch.random.fork_rng(enabled=True):
        result = entry.evaluation.evaluate(model, rows)
    _check(result, entry, len(rows))
    if np.isnan(result.scores).all():
        notes = "; ".join(result.notes)
        raise DataError(f"{entry.data}: none of {len(rows)} rows could be scored: {notes}")
    return result


def _check(result: EvaluationResult, entry: EvaluationEntry, rows: int) -> None:
    """Raise PluginError if a result is not of the form that the contract asks for."""
    metric, _ = entry.evaluation.monitor
    if metric not in result.metrics:
        raise PluginError(
            f"evaluation {entry.plugin!r}: its metrics are {', '.join(result.metrics) or 'none'}, "
            f"expected {metric!r} among them, which it declares as monitor"
        )
    lengths = {"scores": len(result.scores)}
    lengths |= {f"groups[{name!r}]": len(each) for name, each in result.groups.items()}
    lengths |= {f"details[{name!r}]": len(each) for name, each in result.details.items()}
    for name, length in lengths.items():
        if length != rows:
            raise PluginError(
                f"evaluation {entry.plugin!r}: {name} has {length} entries, expected {rows}, one "
                "for each row"
            )


def score_groups(result: EvaluationResult) -> list[GroupScore]:
    """Return the mean of all rows, then of each group, with 95 % intervals over rows."""
    found = [_group_score("all", "", result.scores)]
    for kind, names in result.groups.items():
        of_row = np.array(names)
        for group in dict.fromkeys(names):
            found.append(_group_score(kind, group, result.scores[of_row == group]))
    return found


def _group_score(kind: str, group: str, scores: FloatArray) -> GroupScore:
    scored = scores[~np.isnan(scores)]
    if not len(scored):
        return GroupScore(kind, group, 0, math.nan, math.nan, math.nan)
    low, high = mean_interval(scored)
    return GroupScore(kind, group, len(scored), float(scored.mean()), low, high)


def mean_interval(scores: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of the mean of N scores.

    Wilson's of scores in 0 … 1, which is not empty where all rows are right; scores between, as of
    ties, vary less than it allows for. Student's of other scores.
    """
    count, mean = len(scores), float(scores.mean())
    if scores.min() >= 0 and scores.max() <= 1:
        # Wilson 1927; z = 1.96
        z = float(stats.norm.ppf((1 + _LEVEL) / 2))
        centre = (mean + z**2 / (2 * count)) / (1 + z**2 / count)
        half = z / (1 + z**2 / count) * math.sqrt(mean * (1 - mean) / count + (z / count) ** 2 / 4)
        return max(0.0, centre - half), min(1.0, centre + half)
    if count < 2:
        return math.nan, math.nan
    half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1) * stats.sem(scores))
    return mean - half, mean + half


def named_metrics(name: str, result: EvaluationResult) -> Results:
    """Return the figures of an evaluation under its name: ``blimp/accuracy``."""
    return {f"{name}/{metric}": float(value) for metric, value in result.metrics.items()}


def print_evaluation(name: str, entry: EvaluationEntry, result: EvaluationResult) -> None:
    """Print the figures, the groups of the smallest table, the grids and the notes."""
    metric, _ = entry.evaluation.monitor
    groups = score_groups(result)
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


def write_evaluation(folder: Path, name: str, result: EvaluationResult) -> None:
    """Write an evaluation's rows, groups, grids and pages into a folder."""
    with replacing(folder / f"{name}.rows.jsonl") as file:
        for row in _rows(result):
            file.write(f"{json.dumps(row, ensure_ascii=False)}\n".encode())
    groups = [vars(each).values() for each in score_groups(result)]
    _write_table(folder / f"{name}.groups.csv", tuple(GroupScore.__annotations__), groups)
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


def write_results(folder: Path, results: Mapping[str, float]) -> None:
    """Write the figures beside those of other evaluations; the last of the files to be written."""
    file = folder / RESULTS
    before = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    write_json(file, before | dict(results))


def evaluate_source(
    source: str, entries: Sequence[EvaluationEntry], output: str | None, command: Sequence[str]
) -> Path:
    """Score an earlier model by several evaluations, print and write what they find.

    Args:
        source: run directory, checkpoint, Hugging Face folder or hub name.
        entries: what is asked for.
        output: folder to write; chosen by ``source`` if None.
        command: what was typed, for the manifest.

    Returns:
        The folder.

    Raises:
        BertlabError: the model, the rows or an evaluation cannot be used, or files not be written.
    """
    model = load(source)
    folder = Path(output) if output is not None else _default_folder(model)
    with explain_failed_write(f"output: {folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        results: Results = {}
        for entry in entries:
            result = evaluate(model.evaluated(), entry, read_entry_rows(entry))
            print_evaluation(entry.name, entry, result)
            write_evaluation(folder, entry.name, result)
            results |= named_metrics(entry.name, result)
        write_json(folder / MANIFEST, _manifest(model, entries, command))
        write_results(folder, results)
    sys.stdout.write(f"{folder}: {RESULTS}, and the score of each row\n")
    return folder


def _default_folder(model: PretrainedModel) -> Path:
    if model.path is None:  # a Hugging Face folder or hub name
        return Path("evaluations") / Path(model.source).name
    # RUN/checkpoints/last.ckpt -> RUN/evaluations/step-800
    return model.path.parent.parent / "evaluations" / f"step-{model.global_step}"


def _manifest(
    model: PretrainedModel, entries: Sequence[EvaluationEntry], command: Sequence[str]
) -> dict[str, Any]:
    plugins = [installed("evaluation")[entry.plugin] for entry in entries]
    asked = {
        entry.name: {
            "evaluation": entry.plugin,
            "data": entry.data,
            "split": entry.split,
            "settings": dict(entry.settings),
        }
        for entry in entries
    }
    facts = {
        "command": ["bertlab", *command],
        "model": model.source,
        "step": model.global_step,
        "tokenizer": model.tokenizer.fingerprint,
        "threads": torch.get_num_threads(),
        "evaluations": asked,
    }
    return manifest({plugin.package: plugin.version for plugin in plugins}, facts)
