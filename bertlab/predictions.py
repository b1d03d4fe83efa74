"""Predictions in the user's terms, as JSON lines."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertlab.errors import ConfigError


def write_predictions(
    predictions: Sequence[Mapping[str, Any]],
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    output: str | None,
) -> None:
    """Write one JSON object a text: the text, its pair if any, and what was predicted.

    Args:
        predictions: one mapping for each text.
        texts: what was predicted on.
        pairs: the second text of each.
        output: file to write; standard output if None.

    Raises:
        ConfigError: if the file cannot be written.
    """
    lines = []
    for number, (text, prediction) in enumerate(zip(texts, predictions, strict=True)):
        row = {"text": text} if pairs is None else {"text": text, "text_pair": pairs[number]}
        lines.append(json.dumps({**row, **prediction}, ensure_ascii=False) + "\n")
    if output is None:
        sys.stdout.writelines(lines)
        return
    try:
        Path(output).write_text("".join(lines), "utf-8")
    except OSError as error:
        raise ConfigError(f"--output: {output}: cannot be written: {error.strerror}") from None
