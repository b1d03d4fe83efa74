"""``--executor NAME``: which executor a command uses, and the options that it adds."""

import contextlib
from collections.abc import Iterator, Sequence
from inspect import signature

from jsonargparse import ArgumentParser

from bertlab.api.executor import Executor
from bertlab.config.yaml_files import split_arguments
from bertlab.errors import CommandError, PluginError
from bertlab.plugins.index import installed, load_class

LOCAL_EXECUTOR = "local"


def load_executor(name: str, base: type[Executor]) -> type[Executor]:
    """Return the class of an executor.

    Args:
        name: as ``--executor`` gives it.
        base: what the command needs: :class:`Executor` to tokenise, where ``local`` is this class
            itself, as it needs none; or a subclass of it.

    Raises:
        PluginError: there is none of that name, or it cannot be used.
        CommandError: it does other things.
    """
    if name == LOCAL_EXECUTOR and base is Executor:
        return Executor
    chosen: type[Executor] = load_class("executor", name, Executor)
    if not issubclass(chosen, base):
        raise CommandError(f"--executor: {name} does not execute the runs of studies")
    if base is Executor and chosen.mapping is Executor.mapping:
        raise CommandError(f"--executor: {name} executes the runs of studies, and does not prepare")
    return chosen


def option_names(name: str, base: type[Executor]) -> tuple[str, ...]:
    """Return the options of an executor that a command offers."""
    chosen = load_executor(name, base)
    skipped = chosen.only_for_studies if base is Executor else ()
    return tuple(each for each in signature(chosen).parameters if each not in skipped)


def add_executor_options(
    parser: ArgumentParser, argv: Sequence[str] | None, base: type[Executor]
) -> tuple[str, ...]:
    """Add the options of the executor that ``--executor`` names; return their names.

    Without ``argv``, for completion, those of all executors are added.

    Raises:
        PluginError: as :func:`load_executor`.
        CommandError: the same, or an option is that of another executor.
    """
    given = list(split_arguments(argv or ()))
    named = [value for key, value, _ in given if key == "--executor" and value]
    name = named[-1] if named else LOCAL_EXECUTOR
    names = option_names(name, base)
    chosen = load_executor(name, base)
    parser.add_class_arguments(chosen, None, skip={*signature(chosen).parameters} - {*names})
    known = parser._option_string_actions
    unknown = [key for key, *_ in given if key not in known]
    for option, owner in _all_options(base) if unknown or argv is None else ():
        if argv is None and option not in known:
            parser.add_argument(option)
        if option in unknown:
            how = f"not of {name}" if named else f"give --executor {owner} as well"
            raise CommandError(f"{option}: is an option of the executor {owner}; {how}")
    return names


def _all_options(base: type[Executor]) -> Iterator[tuple[str, str]]:
    """Yield each option of the installed executors, and whose it is."""
    for name in installed("executor"):
        with contextlib.suppress(PluginError, CommandError):  # `bertlab plugins check` says why
            yield from ((f"--{option}", name) for option in option_names(name, base))
