"""Writes docs/plugin-reference.md from the code.

Usage::

    python docs/make_plugin_reference.py          # after a change to a contract or an argument
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import bertlab
from bertlab import errors
from bertlab.cli.plugins import arguments_of
from bertlab.plugins import hooks
from bertlab.plugins.index import GROUPS, OWN_PACKAGE, listed
from bertlab.testing import list_checks

OUTPUT = Path(__file__).parent / "plugin-reference.md"
# one class that plugins import each; what else is public is what they may build with
CONTRACTS = (
    *("Objective", "Head", "Task", "TaskContext", "TaskLoss", "Encoder", "DataSource"),
    *("PackedBatch", "PackedSequences", "EncoderOutput", "Column", "Example", "Labels", "Features"),
    *("TokenLabels", "Evaluation", "EvaluatedModel", "EvaluationResult", "ScoreGrid"),
    *("OptimizerRecipe", "ParameterGroup", "Schedule", "Progress"),
    *(
        "RawDocument",
        "RawExamples",
        "CounterRNG",
        "WordPieceTokenizer",
        "Subcommand",
        "ReportSection",
    ),
)
# what a user of Python calls, and what that returns
FROM_PYTHON = {"fit": "Run", "load": "PretrainedModel", "study": "Study"}
# documented elsewhere: as errors, hooks, built-in plugins; or not ours
ELSEWHERE = {"IntArray", "Metric", "StudyScores", "__version__", "hookimpl"}


def reference() -> str:
    """Return the text of the page."""
    parts = [
        "# Plugin reference",
        "Made from the code by `python docs/make_plugin_reference.py`; a test fails if it is not "
        "up to date. Start with [plugins.md](plugins.md).",
        "## Contracts",
        *(part for name in CONTRACTS for part in _class(f"bertlab:{name}")),
        "## Functions and metrics to build with",
        *(part for target in _building_blocks() for part in _function(target)),
        "## Runs, models and studies from Python",
        *(part for name in _from_python() for part in _function(f"bertlab:{name}")),
        *(part for name in _from_python() for part in _class(f"bertlab:{FROM_PYTHON[name]}")),
        "## Errors",
        "What a user can mend. Each is one message: file or key, what was found, what was "
        "expected. The command prints it and exits with code 2.",
        *(part for name in _errors() for part in _class(f"bertlab.errors:{name}")),
        "## Hooks",
        *(part for name in _hooks() for part in _hook(name)),
        "## Built-in plugins",
        *_plugins(),
        "## Checks of the conformance kit",
        *_checks(),
    ]
    return "\n\n".join(parts) + "\n"


def _building_blocks() -> list[str]:
    plugins = {_load(each.target) for kind in GROUPS for each in listed(kind)}
    names = [
        name
        for name in bertlab.__all__
        if name not in {*CONTRACTS, *ELSEWHERE, *_errors(), *FROM_PYTHON, *FROM_PYTHON.values()}
        and getattr(bertlab, name) not in plugins
    ]
    return ["bertlab.testing:conformance", "bertlab.testing:batch_of"] + [
        f"bertlab:{name}" for name in names
    ]


def _from_python() -> list[str]:
    return [name for name in FROM_PYTHON if name in bertlab.__all__]


def _load(target: str) -> object:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _class(target: str) -> Iterator[str]:
    loaded = _load(target)
    assert isinstance(loaded, type)
    yield f"### `{target.replace(':', '.')}`"
    yield _text(inspect.getdoc(loaded))
    if is_dataclass(loaded):
        yield "\n".join(["```text", *(_field(each) for each in fields(loaded)), "```"])
    for name, member in vars(loaded).items():
        if name.startswith("_") or not (doc := inspect.getdoc(member)):
            continue
        if inspect.isfunction(member) or isinstance(member, classmethod):
            function = getattr(loaded, name)
            yield f"#### `{name}{_signature(function)}`"
            yield _text(doc)
        elif isinstance(member, property) or type(member).__name__ == "cached_property":
            yield f"#### `{name}`"
            yield _text(doc)


def _field(each: Field[Any]) -> str:
    """Return a line ``name: type = default``."""
    kind = each.type if isinstance(each.type, str) else inspect.formatannotation(each.type)
    line = f"{each.name}: {_plain(kind)}"
    if each.default is not MISSING:
        return f"{line} = {getattr(each.default, '__name__', repr(each.default))}"
    if each.default_factory is not MISSING:
        return f"{line} = {each.default_factory()!r}"
    return line


def _function(target: str) -> Iterator[str]:
    loaded = _load(target)
    assert callable(loaded)
    signature = "()" if isinstance(loaded, type) else _signature(loaded)
    yield f"### `{target.replace(':', '.')}{signature}`"
    yield _text(inspect.getdoc(loaded))


def _errors() -> list[str]:
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    return [each.__name__ for each in found if issubclass(each, errors.BertlabError)]


def _hooks() -> list[str]:
    return [name for name in vars(hooks) if name.startswith("bertlab_")]


def _hook(name: str) -> Iterator[str]:
    function = getattr(hooks, name)
    yield f"### `{name}{_signature(function)}`"
    yield _text(inspect.getdoc(function))


def _plugins() -> Iterator[str]:
    for kind in GROUPS:
        for plugin in listed(kind):
            if plugin.package != OWN_PACKAGE:
                continue
            loaded = _load(plugin.target)
            assert isinstance(loaded, type)
            yield f"### {kind} `{plugin.name}`"
            yield _text(
                (inspect.getdoc(loaded) or "").split("\nArgs:")[0].split("\nAttributes:")[0]
            )
            rows = arguments_of(plugin, loaded)
            if rows:
                lines = [
                    f"| `{name}` | `{default}` | {_cell(text)} |" for name, default, text in rows
                ]
                yield "\n".join(["| argument | default | |", "| --- | --- | --- |", *lines])


def _checks() -> Iterator[str]:
    for kind in GROUPS:
        rows = [f"| `{name}` | {_cell(doc)} |" for name, doc in list_checks(kind)]
        yield f"### Of {kind}s"
        yield "\n".join(["| check | |", "| --- | --- |", *rows])


def _signature(function: object) -> str:
    assert callable(function)
    return _plain(str(inspect.signature(function)))


def _plain(annotations: str) -> str:
    """Return annotations without quotation marks and modules."""
    text = re.sub(r"'([\w\[\]., |]+)'", r"\1", annotations)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def _text(doc: str | None) -> str:
    """Return a Google docstring as Markdown: sections in bold, their entries as lists."""
    lines: list[str] = []
    section = False
    for line in (doc or "").replace("``", "`").splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Yields):", line):
            lines += [f"**{line.removesuffix(':')}**", ""]
            section = True
        elif section and re.match(r"    \S", line):
            name, colon, rest = line.strip().partition(": ")
            named = colon and re.fullmatch(r"[\w ]+", name)
            lines.append(f"- `{name}`: {rest}" if named else f"- {line.strip()}")
        elif section and line.strip():
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line)
    roles = re.sub(r":(?:class|meth|func|data|attr):`~?([^`]+)`", r"`\1`", "\n".join(lines))
    return roles.strip()


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


if __name__ == "__main__":
    OUTPUT.write_text(reference(), "utf-8")
    print(f"{OUTPUT}: {len(OUTPUT.read_text('utf-8').splitlines())} lines")
