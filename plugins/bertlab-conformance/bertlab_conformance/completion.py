"""``bertlab completion SHELL``: a script with which a shell completes commands and options.

No package of others is imported, and of their names only plain words get into the script.
"""

import re
from collections.abc import Iterable

from jsonargparse import ArgumentParser

from bertlab import CommandError, nearest
from bertlab.extend import (
    COMMANDS,
    COMMON,
    FIRST_PARTY,
    Request,
    command_names,
    find_command,
    installed,
    make_parser,
    offered_names,
    say,
)

_USAGE = """usage: bertlab completion SHELL

Print a script with which SHELL (bash, zsh, fish) completes commands and options. Where it belongs:

  bash   bertlab completion bash > ~/.local/share/bash-completion/completions/bertlab
  zsh    bertlab completion zsh > ~/.bertlab.zsh      # and in ~/.zshrc: source ~/.bertlab.zsh
  fish   bertlab completion fish > ~/.config/fish/completions/bertlab.fish
"""
_BASH = """_bertlab() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words="" files=1
  case $COMP_CWORD:${{COMP_WORDS[1]}} in
    1:*) words="{commands}" files="" ;;
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word") ${{files:+$(compgen -f -- "$word")}})
}}
complete -F _bertlab bertlab
"""
_SCRIPTS = {
    "bash": (_BASH, '    *:{command}) words="{words}" ;;'),
    "zsh": (
        f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
        '    *:{command}) words="{words}" ;;',
    ),
    "fish": (
        'complete -c bertlab -n __fish_use_subcommand -xa "{commands}"\n{cases}\n',
        'complete -c bertlab -n "__fish_seen_subcommand_from {command}" -a "{words}"',
    ),
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # means nothing else in any shell


def main(argv: list[str]) -> int:
    """Print the script for a shell; return the exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        say(_USAGE)
        return 0
    if len(argv) != 1 or argv[0] not in _SCRIPTS:
        found, shells = " ".join(argv), ", ".join(_SCRIPTS)
        raise CommandError(
            f"completion: found {found!r}{nearest(found, _SCRIPTS)}, expected one shell of {shells}"
        )
    say(completion_script(argv[0]))
    return 0


def completion_script(shell: str) -> str:
    """Return the script for ``bash``, ``zsh`` or ``fish``."""
    commands = [name for name in command_names() if _PLAIN.fullmatch(name)]
    script, case = _SCRIPTS[shell]
    words = {command: " ".join(_words(command)) for command in commands}
    cases = [case.format(command=name, words=each) for name, each in words.items() if each]
    return script.format(commands=" ".join(commands), cases="\n".join(cases))


def _words(command: str) -> list[str]:
    """Return what may follow a command of bertlab's own: actions, names and options."""
    parsers: Iterable[ArgumentParser]
    if command in COMMON:
        from bertlab.extend import build_parser  # noqa: PLC0415  torch, not for the others

        # the keys of text, and those of labelled rows
        requests = Request(), Request(objectives=[], head="single_sentence")
        parsers = [build_parser(command, each, with_hooks=False) for each in requests]
        names = [*offered_names(), *(f"--{key}" for key in COMMON[command])]
    elif command in COMMANDS:
        parsers, names = [make_parser(command, with_hooks=False)[0]], []
    elif installed("command")[command].package in FIRST_PARTY:
        actions = find_command(command).parsers()
        parsers, names = actions.values(), [each for each in actions if each]
    else:
        return []
    options = (key for each in parsers for key in each._option_string_actions)
    return list(dict.fromkeys([*names, *options]))
