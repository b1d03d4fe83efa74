"""``--executor NAME``: which executor a command uses, and the options that it adds."""

import contextlib
from collections.abc import Iterator, Sequence
from inspect import signature

from jsonargparse import ArgumentParser

from bertlab.api.executor import Executor
from bertlab.config.yaml_files import split_arguments
from bertlab.errors import CommandError, PluginError
from bertlab.plugins.index import installed, load_class

LOCAL = "local"


def load_executor(name: str, base: type[Executor]) -> type[Executor] | None:
    """Return the class of an executor; None for ``prepare --executor local``, which needs none.

    Args:
        name: as ``--executor`` gives it.
        base: of what the command needs: :class:`Executor` to tokenise, else a subclass of it.

    Raises:
        PluginError: it cannot be used, or there is none.
        CommandError: it does other things.
    """
    if name == LOCAL and base is Executor:
        return None
    chosen: type[Executor] = load_class("executor", name, Executor)
    if not issubclass(chosen, base):
        raise CommandError(f"--executor: {name} does not execute the runs of studies")
    if base is Executor and chosen.mapping is Executor.mapping:
        raise CommandError(f"--executor: {name} executes the runs of studies, and does not prepare")
    return chosen


def option_names(name: str, base: type[Executor]) -> tuple[str, ...]:
    """Return the options of an executor that a command offers."""
    chosen = load_executor(name, base)
    if chosen is None:
        return ()
    skipped = chosen.only_for_studies if base is Executor else ()
    return tuple(each for each in signature(chosen).parameters if each not in skipped)


def add_executor_options(
    parser: ArgumentParser, argv: Sequence[str] | None, base: type[Executor]
) -> tuple[str, ...]:
    """Add the options of the executor that ``--executor`` names; return their names.

    Args:
        parser: of a command that has ``--executor``.
        argv: of the command; None adds the options of all executors, for completion.
        base: as in :func:`load_executor`.

    Raises:
        PluginError: as :func:`load_executor`.
        CommandError: the same, or an option is that of another executor.
    """
    if argv is None:
        for option, _ in _all_options(base):
            if option not in parser._option_string_actions:
                parser.add_argument(option)
        return ()
    given = list(split_arguments(argv))
    named = [value for key, value, _ in given if key == "--executor" and value]
    name = named[-1] if named else LOCAL
    names = option_names(name, base)
    chosen = load_executor(name, base)
    if chosen is not None:
        parser.add_class_arguments(chosen, None, skip={*signature(chosen).parameters} - {*names})
    unknown = [key for key, *_ in given if key not in parser._option_string_actions]
    for key, owner in _all_options(base) if unknown else ():
        if key in unknown:
            how = f"not of {name}" if named else f"give --executor {owner} as well"
            raise CommandError(f"{key}: is an option of the executor {owner}; {how}")
    return names


def _all_options(base: type[Executor]) -> Iterator[tuple[str, str]]:
    """Yield each option of the installed executors, and whose it is."""
    for name in installed("executor"):
        with contextlib.suppress(PluginError, CommandError):  # `bertlab plugins check` says why
            for option in option_names(name, base):
                yield f"--{option}", name
