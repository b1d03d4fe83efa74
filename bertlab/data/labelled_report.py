"""What the data report and the manifest say of a split of labelled rows."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from bertlab.data.encoded_rows import EncodedRows
from bertlab.data.task_data import ReportRow
from bertlab.heads.base import Head
from bertlab.labelled_rows import LabelledRows, Row

_SHOWN_LABELS = 8


def report_split(split: LabelledRows, encoded: EncodedRows, head: Head) -> list[ReportRow]:
    """Return rows, sequences, tokens, labels and what was left out or cut, each with its figure."""
    lengths = np.diff(encoded.offsets)
    report = [
        ("rows", f"{len(split.rows):,}"),
        ("sequences", f"{len(lengths):,}"),
        ("tokens", f"{lengths.sum():,} (longest {lengths.max()})"),
    ]
    counts = Counter(label for row in split.rows for label in head.labels_of(row))
    if counts:
        shown = [f"{name} {count:,}" for name, count in counts.most_common(_SHOWN_LABELS)]
        more = [f"{len(counts) - _SHOWN_LABELS} more"] if len(counts) > len(shown) else []
        report.append(("labels", ", ".join(shown + more)))
    cut = encoded.truncated
    if cut.any():
        report.append(("truncated", f"{(cut > 0).sum():,} sequences, {cut.sum():,} tokens"))
    report += [(f"left out: {reason}", f"{n:,} rows") for reason, n in split.skipped.items()]
    report += [(note, f"{number:,}") for note, number in encoded.notes.items()]
    return report


def fingerprint(rows: Sequence[Row]) -> str:
    """Return a SHA-256 of the values of all rows, in hexadecimal."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(dict(row.values), sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()
