"""Splits of labelled examples: named by settings, located, held out, and reported."""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bertlab.api.examples import Column, Example, LabelledExamples
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Head
from bertlab.data.examples.encoded import EncodedExamples
from bertlab.data.examples.source import places_of
from bertlab.data.module import EVALUATION_SEED, ReportRow
from bertlab.data.rows.files import is_one_file, is_pattern, looks_like_path, no_such_split
from bertlab.data.sources import is_url, source_of
from bertlab.errors import ConfigError, DataError

# a folder of that name in the working directory is not what is meant
_SPLIT_NAMES = ("train", "validation", "test")


def train_split(source: str | None, given: str | None) -> str:
    """Return the split to train on: ``given``, else the one file, else the source's ``train``."""
    if given is not None:
        return given
    if source is None:
        raise ConfigError("data.source: found none; expected labelled rows, or data.train")
    return source if is_one_file(source) else "train"


def locate_split(split: str, source: str | None, role: str) -> tuple[str, str | None]:
    """Return the location of a split, and its name there; None for a file, which is read whole."""
    if split == source or source is None or is_url(split) or (":" in split and source_of(split)):
        return split, None
    if is_pattern(split) or (Path(split).expanduser().exists() and split not in _SPLIT_NAMES):
        return split, None
    if is_one_file(source) or looks_like_path(split):
        raise no_such_split(split, source, role)
    return source, split


def check_truth(rows: Sequence[Example], columns: Sequence[Column], role: str) -> None:
    """Raise DataError if a row lacks the truth; ``role`` is the setting that names its split."""
    for name in [column.name for column in columns if column.is_truth and column.required]:
        absent = [row.where for row in rows if name not in row.values]
        if absent:
            more = f" ({len(absent):,} rows: {places_of(absent)})" if len(absent) > 1 else ""
            told = f"{absent[0]}: {name}: missing{more}; every row of data.{role} is labelled"
            raise DataError(f"{told}; data.empty: skip leaves such rows out")


def hold_out(
    train: LabelledExamples, fraction: float, columns: Sequence[Column], splits_by: str
) -> tuple[LabelledExamples, LabelledExamples]:
    """Return the rows to train on and those held out, the same in every run, in their order.

    Rows that share a text stay together.
    """
    truth = {column.name for column in columns if column.is_truth}
    keys = [_group(row, splits_by, truth) for row in train.rows]
    # a set's order would change from run to run
    groups = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    rng = CounterRNG(EVALUATION_SEED, "held-out rows")
    places = rng.permute(np.arange(len(groups)), len(groups))  # (G,) each group's in the order
    # (G,) rows of the group at each place
    sizes = np.bincount(places[[groups[key] for key in keys]], minlength=len(groups))
    # sizes of groups in random order [2, 1, 4], of 7 rows 0.4: cumsum [2, 3, 7], 2.8 -> 2 groups
    held_groups = np.searchsorted(sizes.cumsum(), fraction * len(keys)) + 1
    kept, held = LabelledExamples([], train.label_names), LabelledExamples([], train.label_names)
    kept.skipped, kept.understood = train.skipped, train.understood
    for key, row in zip(keys, train.rows, strict=True):
        (held if places[groups[key]] < held_groups else kept).rows.append(row)
    if not kept.rows or not held.rows:
        rows = f"{len(keys)} rows" if len(keys) > 1 else "one row"
        values = f"{len(groups)} different values" if len(groups) > 1 else "one value"
        told = f"data.validation_fraction: {rows} with {values} of {splits_by} cannot be divided"
        raise DataError(f"{told}; give data.validation")
    return kept, held


def check_classes(
    rows: Sequence[Example], kept: LabelledExamples, head: Head, fraction: float
) -> None:
    """Raise DataError if all rows of a class were held out, and none is kept to train on."""
    if kept.label_names is not None:
        return  # declared: training may lack some
    there = {label for row in kept.rows for label in head.labels_of(row)}
    taken = [row for row in rows if not there.issuperset(head.labels_of(row))]
    if taken:
        name = next(label for label in head.labels_of(taken[0]) if label not in there)
        advises = not name.strip("-.0123456789") and getattr(head, "regression", None) is False
        raise DataError(
            f"{taken[0].where}: of {len(rows):,} rows {len(rows) - len(kept.rows):,} are held out "
            f"for validation, and all with the label {name!r} are among them; give more rows, "
            f"data.validation with rows of their own, a data.validation_fraction other than "
            f"{fraction:g}, or data.label_names with all classes"
            + ("; to predict numbers, model.head.regression: true" if advises else "")
        )


def _group(row: Example, splits_by: str, truth: set[str]) -> str:
    """Return a key that is equal for rows that stay together."""
    given = {name: value for name, value in row.values.items() if value is not None}
    others = {name: value for name, value in given.items() if name not in truth}
    return json.dumps(given.get(splits_by, others), ensure_ascii=False)


def with_clusters(rows: Iterable[Example], by: str | None) -> Iterator[Example]:
    """Yield rows with a cluster: one that has none is with those of an equal value of ``by``."""
    for row in rows:
        digest = hashlib.sha256(str(row.values.get(by or "")).encode()).hexdigest()[:12]
        yield row if row.cluster or by is None else replace(row, cluster=f"{by}:{digest}")


_SHOWN_LABELS = 8


def report_split(
    split: LabelledExamples, encoded: EncodedExamples, head: Head, of_source: int | None = None
) -> list[ReportRow]:
    """Return what was understood and found of a split, as names and figures.

    Another split has ``of_source`` rows of the same source.
    """
    lengths = np.diff(encoded.offsets)
    report: list[ReportRow] = list(split.understood.items())
    left_out, held_out = sum(split.skipped.values()), of_source or 0
    report.append(("rows", f"{len(split.rows):,}"))
    if held_out or left_out:
        parts = [f"{len(split.rows):,}"]
        parts += [f"{held_out:,} held out"] if held_out else []
        parts += [f"{left_out:,} left out"] if left_out else []
        total = len(split.rows) + held_out + left_out
        report.append(("in the source", f"{total:,} = {' + '.join(parts)}"))
    report += [
        ("sequences", f"{len(lengths):,}"),
        ("tokens", f"{lengths.sum():,} (longest {lengths.max()})"),
    ]
    if apart := sum(not all(map(_is_composed, row.values.values())) for row in split.rows):
        share = f"{apart:,} rows ({apart / len(split.rows):.1%}), accents apart from their letters"
        report.append(("not in NFC", share))
    found = [list(head.labels_of(row)) for row in split.rows]
    counts = Counter(label for labels in found for label in labels)
    if counts:
        shown = [
            f"{repr(name) if ',' in name or name.isdecimal() else name} {count:,}"
            for name, count in counts.most_common(_SHOWN_LABELS)
        ]
        more = [f"{len(counts) - _SHOWN_LABELS} more"] if len(counts) > len(shown) else []
        report.append(("labels", ", ".join(shown + more)))
        without = sum(not labels for labels in found)
        if without:
            report.append(("without a label", f"{without:,} ({without / len(found):.1%})"))
    report += head.describe_labels().items()
    if answers := [row.values["answers"] for row in split.rows if "answers" in row.values]:
        answered = sum(bool(each["text"]) for each in answers)
        report.append(("with an answer", f"{answered:,} of {len(answers):,}"))
    cut = encoded.truncated
    if cut.any():
        share = (cut > 0).mean()
        report.append(
            ("truncated", f"{(cut > 0).sum():,} sequences ({share:.1%}), {cut.sum():,} tokens")
        )
    report += [(f"left out: {reason}", f"{n:,} rows") for reason, n in split.skipped.items()]
    report += [(note, f"{number:,}") for note, number in encoded.notes.items()]
    return report


def _is_composed(value: object) -> bool:
    """Return whether a text, or all of a list, are in NFC: "é" is one character in it."""
    if isinstance(value, str):
        return unicodedata.is_normalized("NFC", value)
    return not isinstance(value, list) or all(map(_is_composed, value))


def fingerprint(rows: Sequence[Example]) -> str:
    """Return a SHA-256 of the values of all rows, in hexadecimal."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(dict(row.values), sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()
