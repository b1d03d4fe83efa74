"""``bertlab COMMAND … --json``: one JSON document on standard output, all else on standard error.

All commands print by ``say`` and ``print_table``, so the document has what any of them prints, as
``text`` and ``tables``. What a command gives to ``add_to_json`` stands beside them, unrounded.
"""

import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from bertlab import CommandError, __version__
from bertlab import main as run_bertlab
from bertlab.extend import JSON_DOCUMENTS, without_secrets

OPTION = "--json"
# commands whose output is not a document
REFUSED = {
    "completion": "it prints a script for the shell",
    "demo": "it serves a page until Ctrl-C",
    "json": "it is the same as --json behind a command",
    "predict": "it prints JSON lines, one a row",
    "watch": "it serves a page until Ctrl-C",
}
_HELP = ("-h", "--help", "help")
_USAGE = "expected bertlab COMMAND …, as in bertlab plugins list --json"
# what numbers the processes of one run; those after the first print nothing
_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


class Document:
    """What a command prints, as a program reads it.

    Attributes:
        content: JSON-ready values by key; ``text``, ``tables`` and ``exit_code`` in any case.
    """

    def __init__(self, arguments: list[str]) -> None:
        self.content: dict[str, Any] = {
            "bertlab": __version__,
            "arguments": arguments,
            "exit_code": None,
            "text": [],
            "tables": [],
        }

    def add(self, **values: Any) -> None:  # noqa: ANN401  of a command's own
        """Take values by key: mappings and lists of a key that is there are joined."""
        for key, value in values.items():
            new, there = plain(value), self.content.get(key)
            if isinstance(there, list) and isinstance(new, list):
                there += new
            elif isinstance(there, dict) and isinstance(new, dict):
                there |= new
            else:
                self.content[key] = new

    def line(self) -> str:
        """Return the document in one line of ASCII, which every locale can print."""
        return json.dumps(without_secrets(self.content), allow_nan=False) + "\n"


def plain(value: Any) -> Any:  # noqa: ANN401  any value
    """Return a value as JSON has it: NaN and infinity are null, paths and what else are texts."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {each.name: plain(getattr(value, each.name)) for each in fields}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return plain(value.item()) if hasattr(value, "item") else str(value)  # NumPy's, torch's


def main(arguments: list[str]) -> int:
    """Run a command and print its document; return its exit code."""
    rest = [each for each in arguments if each != OPTION]
    if not rest:
        raise CommandError(f"{OPTION}: found no command, {_USAGE}")
    asked = [each for each in rest if each in _HELP]
    if asked or rest[0] in REFUSED:
        reason = "help is text for people" if asked else REFUSED[rest[0]]
        raise CommandError(f"{OPTION}: found beside {(asked or rest)[0]}, expected none: {reason}")
    document = Document(rest)
    with _sent_to_errors():
        JSON_DOCUMENTS.append(document.add)
        try:
            code = run_bertlab(rest)
        finally:
            JSON_DOCUMENTS.remove(document.add)
    document.add(exit_code=code)
    if all(os.environ.get(name, "0") == "0" for name in _RANKS):
        sys.stdout.write(document.line())
    return code


@contextlib.contextmanager
def _sent_to_errors() -> Iterator[None]:
    """Send to standard error what this process and its children write to standard output."""
    sys.stdout.flush()
    with contextlib.ExitStack() as after, contextlib.redirect_stdout(sys.stderr):
        if sys.__stdout__ is not None and sys.__stderr__ is not None:
            with contextlib.suppress(OSError, ValueError):  # there are none, as in a notebook
                out, errors = sys.__stdout__.fileno(), sys.__stderr__.fileno()
                kept = os.dup(out)
                after.callback(os.close, kept)
                os.dup2(errors, out)
                after.callback(os.dup2, kept, out)
        yield
