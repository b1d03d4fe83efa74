"""The contract of an executor: it does long work in other processes, or on other machines."""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol, TypeVar

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
