"""``bertlab init``: an annotated config for data of one's own, ready to be filled in."""

import shlex
from pathlib import Path

from bertlab import CommandError, nearest
from bertlab.extend import (
    OutputError,
    create_text,
    explain_failed_write,
    make_folder,
    say,
    shipped_configs,
)

_USAGE = """usage: bertlab init KIND FILE
       bertlab init --list

Write an annotated config for data of your own. Put your paths into it, then: bertlab fit FILE

{kinds}

  FILE             config to write, such as my.yaml; it must not exist
"""
_FOLDER = "templates/"  # in the names of these configs
# the words that a template has where the user's own belong
_FILE, _RUNS = "my.yaml", ("runs/finetune-my", "runs/my")


def main(argv: list[str]) -> int:
    """Write a config and say what to do with it; return the exit code."""
    texts = {kind: path.read_text("utf-8") for kind, path in templates().items()}
    if not argv or {"-h", "--help", "--list"} & {*argv}:
        kinds = "\n".join(f"  {kind:<16} {_title(text)}" for kind, text in texts.items())
        if "--list" in argv:
            say(kinds)
            return 0
        say(_USAGE.format(kinds=kinds))
        return 0
    if len(argv) != 2 or any(each.startswith("-") for each in argv):
        raise CommandError(
            f"init: found {shlex.join(argv)!r}, expected KIND FILE, as in "
            "bertlab init ner my.yaml; see bertlab init --help"
        )
    kind, path = argv[0], Path(argv[1])
    if kind not in texts:
        raise CommandError(
            f"init: no kind is called {kind!r}{nearest(kind, texts)} "
            f"(there are: {', '.join(texts)})"
        )
    if path.exists():
        raise OutputError(f"{path}: exists, expected a new file")
    text = texts[kind].replace(_FILE, shlex.quote(str(path)))
    for run in _RUNS:
        text = text.replace(run, shlex.quote(run.removesuffix("my") + path.stem))
    with explain_failed_write(f"{path}: cannot be written"):
        make_folder(path.parent)
        create_text(path, text)
    marks = [number for number, line in enumerate(text.splitlines(), 1) if "<<<" in line][1:]
    say(
        f"{path}: {_title(text)}\n"
        f"  fill in line{'s'[: len(marks) != 1]} {', '.join(map(str, marks))}, marked with <<<\n"
        f"  bertlab fit {shlex.quote(str(path))}"
    )
    return 0


def templates() -> dict[str, Path]:
    """Return the configs that ``bertlab init`` writes, by kind."""
    # templates/ner -> ner, of a package poems/templates/verses -> poems/verses
    return {
        name.replace(_FOLDER, "", 1): path
        for name, path in shipped_configs().items()
        if f"/{_FOLDER}" in f"/{name}"
    }


def _title(text: str) -> str:
    """Return the first line of a config: ``# Label texts: …``."""
    return text.partition("\n")[0].removeprefix("# ").rstrip(".")
