"""``bertlab init``: an annotated config for data of one's own, ready to be filled in."""

import shlex
from pathlib import Path

from bertlab.config.shipped import templates
from bertlab.errors import CommandError, OutputError, nearest, say
from bertlab.files import create_text, explain_failed_write

_USAGE = """usage: bertlab init KIND FILE

Write an annotated config for data of your own. Put your paths into it, then: bertlab fit FILE

{kinds}

  FILE             config to write, such as my.yaml; it must not exist
"""
# the words that a template has where the user's own belong
_FILE, _RUNS = "my.yaml", ("runs/finetune-my", "runs/my")


def main(command: str, argv: list[str]) -> int:
    """Write a config and say what to do with it; return the exit code."""
    texts = {kind: path.read_text("utf-8") for kind, path in templates().items()}
    if not argv or "-h" in argv or "--help" in argv:
        kinds = "\n".join(f"  {kind:<17}{_title(text)}" for kind, text in texts.items())
        say(_USAGE.format(kinds=kinds))
        return 0
    if len(argv) != 2 or any(each.startswith("-") for each in argv):
        raise CommandError(
            f"{command}: found {shlex.join(argv)!r}, expected KIND FILE, as in "
            f"bertlab {command} ner my.yaml; see bertlab {command} --help"
        )
    kind, path = argv[0], Path(argv[1])
    if kind not in texts:
        raise CommandError(
            f"{command}: no kind is called {kind!r}{nearest(kind, texts)} "
            f"(there are: {', '.join(texts)})"
        )
    if path.exists():
        raise OutputError(f"{path}: exists, expected a new file")
    text = texts[kind].replace(_FILE, shlex.quote(str(path)))
    for run in _RUNS:
        text = text.replace(run, shlex.quote(run.removesuffix("my") + path.stem))
    with explain_failed_write(f"{path}: cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        create_text(path, text)
    marks = [number for number, line in enumerate(text.splitlines(), 1) if "<<<" in line][1:]
    say(
        f"{path}: {_title(text)}\n"
        f"  fill in line{'s'[: len(marks) != 1]} {', '.join(map(str, marks))}, marked with <<<\n"
        f"  bertlab fit {shlex.quote(str(path))}"
    )
    return 0


def _title(text: str) -> str:
    """Return the first line of a config: ``# Label texts: …``."""
    return text.partition("\n")[0].removeprefix("# ").rstrip(".")
