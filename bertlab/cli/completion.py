"""``bertlab completion SHELL``: a script with which a shell completes commands, options and names.

``shtab`` writes it. Options are those of bertlab's own packages: no package of others is imported,
and of their names only plain words get into the script, which a shell runs.
"""

import argparse
import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args, get_origin

import shtab
from jsonargparse import ArgumentParser

from bertlab.api.executor import Executor
from bertlab.cli.data import add_executor_options
from bertlab.cli.errors import catalogue
from bertlab.cli.main import COMMANDS, command_names, find_command
from bertlab.cli.plugins import arguments_of
from bertlab.config.parser import build_parser
from bertlab.config.request import Request
from bertlab.config.shipped import offered_names, templates
from bertlab.errors import CommandError, nearest, say
from bertlab.plugins.index import FIRST_PARTY, GROUPS, Kind, installed, load_class

_USAGE = """usage: bertlab completion SHELL

Print a script with which SHELL ({shells}) completes commands, options and
names. Print it again when you have installed plugins. Where it belongs:

  bash   bertlab completion bash > ~/.local/share/bash-completion/completions/bertlab
  zsh    bertlab completion zsh > ~/.zfunc/_bertlab      # and in ~/.zshrc: fpath=(~/.zfunc $fpath)
  fish   bertlab completion fish > ~/.config/fish/completions/bertlab.fish
"""
# a function that offers the names of configs beside files; $1 is the word so far
_CONFIGS = {
    "bash": """_bertlab_configs() {{
  compgen -W "{names}" -- "$1"
  compgen -f -- "$1"
}}""",
    "zsh": """_bertlab_configs() {{
  _alternative 'configs:config:({names})' 'files:file:_files'
}}""",
}
# of packages of ours, whose hooks are not imported for this
_KEYS_OF_FIT = ("evaluations", "evaluate_every", "checkpoint_words", "seeds", "check_every")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # means nothing else in any shell
Options = Mapping[str, Sequence[str]]  # what may follow each; no words: a file
_CONFIG = {**shtab.FILE, **dict.fromkeys(_CONFIGS, "_bertlab_configs")}
_LIKE_FIT = ("fit", "validate", "test", "predict")
# kinds of which a config names one, and where its arguments stand
_SECTIONS: dict[Kind, str] = {
    "encoder": "model.encoder",
    "head": "model.head",
    "optimizer": "model.optimizer",
    "schedule": "model.optimizer.schedule",
    "tokenizer": "data.tokenizer_kind",
}


def main(command: str, argv: list[str]) -> int:
    """Print the script for a shell; return the exit code."""
    shells = ", ".join(shtab.SUPPORTED_SHELLS)
    if not argv or "-h" in argv or "--help" in argv:
        say(_USAGE.format(shells=shells))
        return 0
    if len(argv) != 1 or argv[0] not in shtab.SUPPORTED_SHELLS:
        found = " ".join(argv)
        hint = nearest(found, shtab.SUPPORTED_SHELLS)
        raise CommandError(f"{command}: found {found!r}{hint}, expected one shell of {shells}")
    say(completion_script(argv[0]))
    return 0


def completion_script(shell: str) -> str:
    """Return the script for one of ``shtab.SUPPORTED_SHELLS``."""
    root = argparse.ArgumentParser("bertlab", add_help=False)
    commands = root.add_subparsers()
    for command in filter(_PLAIN.fullmatch, command_names()):
        parser = commands.add_parser(
            command, add_help=False, help=COMMANDS.get(command, ("", command))[1]
        )
        actions = _options(command)
        _add(parser, actions.pop("", {}))
        if not actions:
            continue
        below = parser.add_subparsers()
        for action, options in actions.items():
            _add(below.add_parser(action, add_help=False, help=action), options)
    preamble = _CONFIGS[shell].format(names=" ".join(offered_names())) if shell in _CONFIGS else ""
    script: str = shtab.complete(root, shell, preamble=preamble)
    return script


def _add(parser: argparse.ArgumentParser, options: Options) -> None:
    for option, words in options.items():
        nargs = None if option.startswith("-") else "*"
        added = parser.add_argument(option, nargs=nargs, choices=words or None)
        if not words:
            # shtab's attribute of an argument
            added.complete = _CONFIG if option in ("CONFIG", "--config") else shtab.FILE  # type: ignore[attr-defined]


def _options(command: str) -> dict[str, Options]:
    """Return the options of a command, or of each of its actions; none of packages of others."""
    if command in _LIKE_FIT:
        return {"": dict(_keys_of_configs(command))}
    if command in _BY_HAND:
        return {"": dict(_BY_HAND[command]())}
    if command in COMMANDS:
        parser = importlib.import_module(COMMANDS[command][0]).make_parser(command)
        if command == "prepare":
            add_executor_options(parser, None, Executor)
        return {"": dict(_options_of(parser))}
    if installed("command")[command].package not in FIRST_PARTY:
        return {}
    return {
        action: dict(_options_of(each)) for action, each in find_command(command).parsers().items()
    }


# commands that read their arguments by hand
_BY_HAND: dict[str, Callable[[], Options]] = {
    "init": lambda: {"KIND": list(templates())},
    "plugins": lambda: {"ACTION": ["list", "show", "check", *_names(*GROUPS)]},
    "explain": lambda: {"CODE": list(catalogue())},
    "completion": lambda: {"SHELL": list(shtab.SUPPORTED_SHELLS)},
}
# options that name a plugin
_NAMING: dict[str, Kind] = {
    "--kind": "tokenizer",
    "--format": "exporter",
    "--executor": "executor",
    "--evaluation": "evaluation",
    **{f"--{section}.name": kind for kind, section in _SECTIONS.items()},
}


def _names(*kinds: Kind) -> list[str]:
    return [name for kind in kinds for name in installed(kind) if _PLAIN.fullmatch(name)]


def _options_of(parser: ArgumentParser) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the options of a parser, with the words that may follow."""
    for action in parser._actions:
        hint = getattr(action, "_typehint", None)
        words = [
            str(word)
            for member in (hint, *get_args(hint))
            if get_origin(member) is Literal
            for word in get_args(member)
        ]
        for option in action.option_strings or [action.dest]:
            named = _names(_NAMING[option]) if option in _NAMING else action.choices
            yield option, [*(named or words)]


def _keys_of_configs(command: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield every key of a command that takes configs, whatever plugins of bertlab's it names."""
    own = [name for name, each in installed("objective").items() if each.package in FIRST_PARTY]
    # the keys of text, and those of labelled rows
    for request in (Request(objectives=[], head="single_sentence"), Request(objectives=own)):
        yield from _options_of(build_parser(command, request, with_hooks=False))
    for kind, section in _SECTIONS.items():
        for name, plugin in installed(kind).items():
            if plugin.package in FIRST_PARTY:
                keys = arguments_of(plugin, load_class(kind, name, object))
                yield from ((f"--{section}.{key}", ()) for key, *_ in keys)
    if command == "fit":
        yield from ((f"--{key}", ()) for key in _KEYS_OF_FIT)
        yield "CONFIG", ()
