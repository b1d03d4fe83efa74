"""``bertlab init``: an annotated config for data of one's own, ready to be filled in."""

import shlex
from collections.abc import Collection
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

_USAGE = """usage: bertlab init KIND FILE [--for PLACE]
       bertlab init --list

Write an annotated config for data of your own. Put your paths into it, then: bertlab fit FILE

{kinds}

  FILE             config to write, such as my.yaml; it must not exist
  --for PLACE      of pretraining: gpu, cluster, or laptop: the largest model that learns something
                   in an hour on this machine, which is timed
"""
_PLACE = "--for"
PRETRAINING = "pretraining"
_FOLDER = "templates/"  # in the names of these configs
# the words that a template has where the user's own belong
_FILE, _RUNS = "my.yaml", ("runs/finetune-my", "runs/my")
_OF_DATA = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet")  # which fit takes for no config
# heads, and what other programs call these kinds
_OTHER_NAMES = {
    **dict.fromkeys(("single_sentence", "text-classification", "sentiment"), "classification"),
    **dict.fromkeys(("sentence_pair", "nli", "similarity"), "pair"),
    **dict.fromkeys(("tagging", "token-classification"), "ner"),
    **dict.fromkeys(("span", "question-answering", "squad"), "qa"),
}


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
    given, place = _take_place(argv)
    if len(given) != 2 or any(each.startswith("-") for each in given):
        raise CommandError(
            f"init: found {shlex.join(argv)!r}, expected KIND FILE, as in "
            "bertlab init ner my.yaml; see bertlab init --help"
        )
    kind, path = given[0], Path(given[1])
    if kind not in texts:
        raise _no_kind(given, texts)
    _check_new(path)
    said: list[str] = []
    if kind == PRETRAINING:
        from bertlab_conformance.init_place import PLACES, ask_place, for_place  # noqa: PLC0415

        if place is not None and place not in PLACES:
            raise CommandError(f"init --for: found {place!r}, expected {', '.join(PLACES)}")
        place = place or ask_place()
        texts[kind], said = for_place(texts[kind], templates()[kind], place)
    elif place is not None:
        raise CommandError(f"init --for: found it with {kind}, expected {PRETRAINING}")
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
        f"  bertlab fit {shlex.quote(str(path))}" + "".join(f"\n  {line}" for line in said)
    )
    return 0


def _check_new(path: Path) -> None:
    if path.exists():
        raise OutputError(f"{path}: exists, expected a new file")
    if path.suffix in _OF_DATA:
        new = path.with_suffix(".yaml")
        raise OutputError(f"{path}: found a name of data, expected a config to write, as {new}")


def _no_kind(given: list[str], kinds: Collection[str]) -> CommandError:
    kind, file = given
    if file in kinds:
        typed = shlex.join(["bertlab", "init", file, kind])
        return CommandError(f"init: found {shlex.join(given)}, expected the kind first: {typed}")
    hint = f"{nearest(_OTHER_NAMES.get(kind, kind), kinds)} (there are: {', '.join(kinds)})"
    return CommandError(f"init: no kind is called {kind!r}{hint}")


def _take_place(argv: list[str]) -> tuple[list[str], str | None]:
    """Return the other arguments, and what ``--for`` says."""
    for number, each in enumerate(argv):
        if each == _PLACE and number + 1 < len(argv):
            return [*argv[:number], *argv[number + 2 :]], argv[number + 1]
        if each.startswith(f"{_PLACE}="):
            return [*argv[:number], *argv[number + 1 :]], each.partition("=")[2]
    return argv, None


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
