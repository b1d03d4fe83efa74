"""The contract of an executor, which does long work elsewhere, and the options of those found."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any, ClassVar, Protocol, TypeVar

from jsonargparse import ArgumentParser

from bertlab import CommandError, PluginError
from bertlab.extend import installed, load_class, split_arguments

LOCAL_EXECUTOR = "local"
Batch = TypeVar("Batch")
Result = TypeVar("Result")


class OrderedMap(Protocol):
    """Calls a function for each batch of a corpus, somewhere; what :meth:`Executor.mapping` gives.

    Closing the generator that it returns ends the work early.
    """

    def __call__(
        self, read: Callable[[], Iterable[Batch]], function: Callable[[Batch], Result], /
    ) -> Generator[Result, None, None]:
        """Yield ``function(batch)`` for each batch that ``read()`` yields, in their order.

        Args:
            read: can be pickled. It yields the same batches whenever and wherever it is called,
                so that it can be called again if the process that reads is lost.
            function: can be pickled, and depends on its argument alone.

        Raises:
            BertlabError: from ``read`` or ``function``, passed on.
            TokenStoreError: the work had to be given up.
        """


class Executor:
    """Does long work elsewhere: an entry point of ``bertlab.executors``, named by ``--executor``.

    It can do one of two things, or both:

    - tokenise a corpus for ``bertlab prepare``: it overrides :meth:`mapping`;
    - execute the runs of a study for ``bertlab study run``: it derives from ``StudyExecutor`` of
      ``bertlab_studies.execute.executor``, which has the types of runs and of what happens to them.

    The arguments of ``__init__`` are the user's options, ``--address HOST:PORT``, with their types,
    defaults and help. None is called like an option of the command itself. ``__init__`` checks
    them, and raises a ``CommandError`` that begins with the option's name. It does nothing else:
    what the executor needs is imported and reached when its work begins.

    Attributes:
        only_for_studies: options about the runs of a study, which ``bertlab prepare`` does not
            offer.
    """

    only_for_studies: ClassVar[tuple[str, ...]] = ()

    def mapping(self, workers: int | None) -> AbstractContextManager[OrderedMap]:
        """Return a context that has a connection, and gives what calls functions over it.

        ``bertlab prepare`` enters it before it reads the corpus, and leaves it when the store is
        written or has failed. The store does not depend on who made it: results are in order.

        Args:
            workers: calls at a time; None for as many as there is room for.

        Raises:
            BertlabError: when it is entered: what is needed is not installed, or not reached.
        """
        raise NotImplementedError  # `bertlab prepare` refuses a class that does not override this


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
    parser: ArgumentParser, argv: Sequence[str], base: type[Executor]
) -> tuple[str, ...]:
    """Add the options of the executor that ``--executor`` names; return their names.

    Raises:
        PluginError: as :func:`load_executor`.
        CommandError: the same, or an option is that of another executor.
    """
    given = list(split_arguments(argv))
    named = [value for key, value, _ in given if key == "--executor" and value]
    name = named[-1] if named else LOCAL_EXECUTOR
    names = option_names(name, base)
    chosen = load_executor(name, base)
    parser.add_class_arguments(chosen, None, skip={*signature(chosen).parameters} - {*names})
    known = parser._option_string_actions
    unknown = [key for key, *_ in given if key not in known]
    for option, owner in _all_options(base) if unknown else ():
        if option in unknown:
            how = f"not of {name}" if named else f"give --executor {owner} as well"
            raise CommandError(f"{option}: is an option of the executor {owner}; {how}")
    return names


def _all_options(base: type[Executor]) -> Iterator[tuple[str, str]]:
    """Yield each option of the installed executors, and whose it is."""
    for name in installed("executor"):
        with contextlib.suppress(PluginError, CommandError):  # `bertlab plugins check` says why
            yield from ((f"--{option}", name) for option in option_names(name, base))


Elsewhere = Callable[[dict[str, Any]], AbstractContextManager[OrderedMap | None]]


def add_prepare_options(parser: ArgumentParser, argv: Sequence[str]) -> Elsewhere:
    """Add ``--executor`` and the options of the one that it names to ``bertlab prepare``.

    Returns:
        What takes these out of the parsed options, and gives a context in which text is tokenised.
    """
    parser.add_argument(
        "--executor", type=str, default=LOCAL_EXECUTOR, help="what tokenises: this machine, ray, …"
    )
    names = add_executor_options(parser, argv, Executor)

    def elsewhere(options: dict[str, Any]) -> AbstractContextManager[OrderedMap | None]:
        name = options.pop("executor")
        made = load_executor(name, Executor)(**{each: options.pop(each) for each in names})
        return nullcontext() if name == LOCAL_EXECUTOR else made.mapping(options["workers"])

    return elsewhere
