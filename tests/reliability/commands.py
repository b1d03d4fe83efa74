"""Commands that must end well whatever they are given, and how that is judged."""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

from bertlab.cli.main import main

ERROR = re.compile(r"^bertlab: error (E[1-6]\d\d): (.*)", re.MULTILINE | re.DOTALL)
MAX_LINES = 12  # lists of tensors and of changed keys are long


@dataclass(frozen=True)
class Answer:
    """What a command said: its exit code, and both streams."""

    code: int
    output: str
    error: str


def run_command(arguments: list[str]) -> Answer:
    """Run ``bertlab`` in this process."""
    output, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
        try:
            code = main(arguments)
        except SystemExit as ended:  # no way to end a command
            raise AssertionError(f"SystemExit({ended.code}) of {arguments}") from ended
    return Answer(code, output.getvalue(), error.getvalue())


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return all that lies in a folder, with what the files hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def check_refused(answer: Answer, names: tuple[str, ...]) -> None:
    """Check that a mistake was told as it should be.

    Args:
        answer: of the command.
        names: the message names one of them: the file, the key, or the row.
    """
    told = f"exit code {answer.code}\n{answer.error}"
    assert answer.code == 2, told
    assert "Traceback" not in answer.error, told
    found = ERROR.search(answer.error)
    assert found, told
    assert len(found[2].splitlines()) <= MAX_LINES, told
    assert any(name in found[2] for name in names), f"none of {names} in: {told}"
    assert len(ERROR.findall(answer.error)) == 1, told


def check_answered(answer: Answer, names: tuple[str, ...]) -> None:
    """Check that input that may do no harm was either taken or refused as it should be."""
    if answer.code != 0:
        check_refused(answer, names)
    assert "Traceback" not in answer.error, answer.error
