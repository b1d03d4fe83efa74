"""Where a head is wrong, for the page of its run: tables, charts and rows of its diagnosis."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from bertlab_pages.line_charts import Line, line_chart, padded_range
from bertlab_pages.tables import Grid, plain_grid

_LARGEST_MATRIX = 12  # classes; of more, the commonest confusions are listed
_MOST_LISTED = 30
_SCORE_IS = {
    "classes": "the probability of what was predicted",
    "choices": "the probability of what was predicted",
    "labels": "1 less the mean distance between probabilities and truth",
    "tags": "the share of words that are right",
    "answers": "the probability of the answer",
    "numbers": "the absolute error",
}


def head_section(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page's template shows of a head; of a damaged record KeyError and the like.

    Args:
        name: that people read.
        found: what ``diagnose`` said of it.
    """
    kind, rows = str(found["kind"]), int(found["rows"])
    return {
        "name": name,
        "about": _about(found),
        "matrix": _matrix(found) if kind in ("classes", "tags", "labels") else None,
        "tables": list(_tables(found)),
        "charts": [chart for chart in _task_charts(kind, found) if chart is not None],
        "worst": [_card(row) for row in found["worst"]],
        "longest": [_card(row) for row in found["longest"]],
        "score_is": _SCORE_IS.get(kind, "no score"),
        "cut": _cut(found["cut"], kind) if rows else "",
    }


def _card(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a row; a KeyError if the record is damaged."""
    score = row["score"]
    return {
        **{key: str(row[key]) for key in ("where", "text", "truth", "prediction")},
        "right": row["right"],
        "score": None if score is None else f"{float(score):#.4g}",
        **{key: f"{int(row[key]):,}" if row[key] else "" for key in ("tokens", "cut")},
    }


def _about(found: Mapping[str, Any]) -> str:
    rows, of = int(found["rows"]), int(found["all_rows"])
    part = f"{rows:,} held-out rows" if rows == of else f"{rows:,} of {of:,} held-out rows"
    wrong = "" if found["kind"] == "numbers" else f", {int(found['wrong']):,} of them wrong"
    return f"Step {int(found['step']):,}: {part}{wrong}."


def _cut(cut: Mapping[str, int], kind: str) -> str:
    if not cut["rows"]:
        return ""
    if kind == "numbers":
        return f"{cut['rows']:,} were cut at data.max_seq_length"
    right = cut["right"] / cut["rows"]
    whole = f", {cut['whole_right'] / cut['whole']:.1%} of the others" if cut["whole"] else ""
    return f"{cut['rows']:,} were cut at data.max_seq_length, {right:.1%} of them are right{whole}"


def _matrix(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the confusion matrix, its cells with the share of the row; None of many classes."""
    names = [str(name) for name, *_ in found["classes"]]
    counts = {(str(a), str(b)): int(count) for a, b, count in found["confusions"]}
    if not 1 < len(names) <= _LARGEST_MATRIX or found["kind"] == "labels":
        return None
    misses = any("" in pair for pair in counts)  # an entity that is missed, or one too many
    rows, columns = [*names, *[""] * misses], [*names, *[""] * misses]
    shown = []
    for truth in rows:
        cells = [counts.get((truth, guess), 0) for guess in columns]
        most = max(1, sum(cells))
        shown.append((truth or "(none)", [(n or "", round(0.75 * n / most, 2)) for n in cells]))
    return {"columns": [name or "(missed)" for name in columns], "rows": shown}


def _tables(found: Mapping[str, Any]) -> Iterator[tuple[str, Grid]]:
    classes = found["classes"]
    if classes:
        kind = "entity" if any(not a or not b for a, b, _ in found["confusions"]) else "class"
        kind = "label" if found["kind"] == "labels" else kind
        rows = []
        for name, true, guessed, right in classes[: 4 * _MOST_LISTED]:
            shares = (
                _share(right, guessed),
                _share(right, true),
                _share(2 * right, true + guessed),
            )
            rows.append((str(name), f"{int(true):,}", *shares))
        headings = (kind, "true", "precision", "recall", "f1")
        yield f"Scores by {kind}", plain_grid(headings, rows, 4)
    wrong = [(a, b, n) for a, b, n in found["confusions"] if a != b]
    if len(classes) > _LARGEST_MATRIX and wrong:
        listed = [(str(a or "(none)"), str(b or "(missed)"), f"{n:,}") for a, b, n in wrong]
        grid = plain_grid(("truth", "prediction", "rows"), listed[:_MOST_LISTED], 1)
        yield "Commonest confusions", grid


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _task_charts(kind: str, found: Mapping[str, Any]) -> Iterator[Markup | None]:
    bins = found["calibration"]
    if bins:
        total = sum(count for *_, count in bins)
        error = sum(abs(sure - right) * count for sure, right, count in bins) / total
        yield line_chart(
            f"Calibration: error {error:.1%}",
            [Line("share that is right", [each[0] for each in bins], [each[1] for each in bins])],
            ("confidence", "share that is right"),
            percent=True,
            square=(0.0, 1.0),
        )
    if kind == "labels":
        xs, *curves = zip(*found["thresholds"], strict=True)
        names = ("precision", "recall", "f1")
        lines = [Line(name, xs, ys) for name, ys in zip(names, curves, strict=True)]
        title = f"Thresholds; in use: {float(found['threshold']):.3g}"
        yield line_chart(title, lines, ("threshold", "share"), percent=True)
    if kind == "numbers":
        points = [(float(a), float(b)) for a, b in found["points"] if a is not None]
        values = [value for point in points for value in point if math.isfinite(value)]
        if values:
            rows = Line("a row", [a for a, _ in points], [b for _, b in points], is_scatter=True)
            yield line_chart(
                "Prediction against truth",
                [rows],
                ("truth", "prediction"),
                square=padded_range(values),
            )
            errors = sorted(abs(b - a) for a, b in points)
            shares = [(n + 1) / len(errors) for n in range(len(errors))]
            line = Line("rows within the error", errors, shares)
            yield line_chart("Absolute errors", [line], ("error", "share of rows"), percent=True)
