"""``bertlab completion SHELL``: a script with which a shell completes commands, options and names.

``shtab`` writes it from the parsers of all commands, as they are with the plugins installed now.
"""

import contextlib
import importlib
from typing import get_args

import shtab
from jsonargparse import ArgumentParser

from bertlab.api.executor import Executor
from bertlab.cli.errors import catalogue
from bertlab.cli.main import COMMANDS, command_names, find_command, line_of
from bertlab.cli.plugins import arguments_of
from bertlab.config.executor_options import add_executor_options
from bertlab.config.parser import build_parser
from bertlab.config.request import Request
from bertlab.config.shipped import offered_names, templates
from bertlab.errors import CommandError, PluginError, nearest, say
from bertlab.plugins.index import GROUPS, Kind, installed, load_class
from bertlab.plugins.new.names import GROUP_OF_KIND

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
_COMPLETE = "complete"  # shtab's attribute of an argument: what to complete it with
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
    root = ArgumentParser(prog="bertlab", exit_on_error=False)
    commands = root.add_subcommands(required=False)
    for command in command_names():
        parsers = _parsers(command)
        parser = parsers.pop("", None) or ArgumentParser(prog=f"bertlab {command}")
        _complete_files(parser)
        commands.add_subcommand(command, parser, help=line_of(command))
        if parsers:
            actions = parser.add_subcommands(required=False)
            for action, of_action in parsers.items():
                _complete_files(of_action)
                actions.add_subcommand(action, of_action)
    names = " ".join(offered_names())
    preambles = [_CONFIGS[shell].format(names=names)] if shell in _CONFIGS else []
    script: str = root.get_completion_script(f"shtab-{shell}", preambles=preambles)
    return script


def _parsers(command: str) -> dict[str, ArgumentParser]:
    """Return the parser of a command, or one for each of its actions."""
    if command not in COMMANDS:
        try:
            return dict(find_command(command).parsers())
        except PluginError:  # `bertlab plugins check` says why
            return {}
    if command in _LIKE_FIT:
        return {"": _parser_of_configs(command)}
    words = _words()
    if command not in words:
        made: ArgumentParser = importlib.import_module(COMMANDS[command][0]).make_parser(command)
        if command == "tokenizer":
            made._option_string_actions["--kind"].choices = list(installed("tokenizer"))
        if command == "prepare":
            add_executor_options(made, None, Executor)
        if command == "export":
            made._option_string_actions["--format"].choices = list(installed("exporter"))
        return {"": made}
    # the command reads its arguments by hand
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    for option, choices in words[command].items():
        added = parser.add_argument(option, nargs=None if option.startswith("-") else "*")
        added.choices = choices
    return {"": parser}


def _words() -> dict[str, dict[str, list[str] | None]]:
    """Return options and arguments, with what each may be, of commands without a parser."""
    return {
        "init": {"KIND": list(templates())},
        "plugins": {
            "ACTION": ["list", "show", "check", *(n for k in GROUPS for n in installed(k))]
        },
        "new-plugin": {"KIND": list(GROUP_OF_KIND), "--output": None},
        "explain": {"CODE": list(catalogue())},
        "completion": {"SHELL": list(shtab.SUPPORTED_SHELLS)},
    }


def _parser_of_configs(command: str) -> ArgumentParser:
    """Return a parser with every key of a command that takes configs, whatever plugins it names."""
    parser = build_parser(command, Request(objectives=list(installed("objective"))))
    # the keys of labelled rows
    rows = build_parser(command, Request(objectives=[], head="single_sentence"))
    _add(parser, [option for action in rows._actions for option in action.option_strings])
    for kind, section in _SECTIONS.items():
        for name in installed(kind):
            with contextlib.suppress(PluginError):  # `bertlab plugins check` says why
                keys = arguments_of(installed(kind)[name], load_class(kind, name, object))
                _add(parser, [f"--{section}.{key}" for key, *_ in keys])
        parser._option_string_actions[f"--{section}.name"].choices = list(installed(kind))
    if command == "fit":
        setattr(parser.add_argument("CONFIG", nargs="*"), _COMPLETE, _CONFIG)
    setattr(parser._option_string_actions["--config"], _COMPLETE, _CONFIG)
    return parser


def _add(parser: ArgumentParser, options: list[str]) -> None:
    for option in options:
        if option not in parser._option_string_actions:
            parser.add_argument(option)


def _complete_files(parser: ArgumentParser) -> None:
    """Have the shell offer files where an option takes any text."""
    for action in parser._actions:
        if action.nargs == 0 or action.choices or hasattr(action, _COMPLETE):
            continue
        annotation = getattr(action, "_typehint", str)
        if str in (annotation, *get_args(annotation)):
            setattr(action, _COMPLETE, shtab.FILE)
