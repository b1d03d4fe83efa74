"""Files of a run that its page is made of, beside the core's: samples, and the diagnosis of heads.

A run may come from anywhere: what is not as it should be is left out.
"""

import io
from pathlib import Path
from typing import Any

from bertlab.extend import parse_json, read_bytes, read_object

DIAGNOSIS = "diagnosis.json"
PAGE = "run.html"
SAMPLES = "samples.jsonl"
_TEXTS = ("task", "sample", "text", "truth", "prediction")  # of a line, beside its step
_FORM = {"step": int, **dict.fromkeys(_TEXTS, str)}


def read_diagnosis(directory: Path) -> dict[str, Any]:
    """Return ``diagnosis.json`` of a run; an empty one if there is none.

    Raises:
        DamagedRecordError: it cannot be read.
    """
    path = directory / DIAGNOSIS
    return read_object(path, {"tasks": dict, "data": list}) if path.is_file() else {}


def read_samples(path: Path) -> list[dict[str, Any]]:
    """Return the lines, of each step and sample the latest; what is no such line is left out.

    A kill may have cut one, and another program may have written the file.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    if path.is_file():
        for line in io.BytesIO(read_bytes(path)):
            try:
                row = parse_json(line.decode(errors="replace"))
            except ValueError:
                continue
            if isinstance(row, dict) and all(isinstance(row.get(k), t) for k, t in _FORM.items()):
                found[row["step"], row["task"], row["sample"]] = row
    return list(found.values())
