"""Tokenizing a corpus on Ray Data: on this machine, or on the nodes of a cluster.

One task reads the text, as one process reads it here, and hands batches of documents to tasks on
all nodes. What they return comes back in order, so that the store depends neither on how many
there are, nor on those that Ray runs again because a worker or a node was lost.
"""

import importlib
import logging
import pickle
import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from bertlab.api import BertlabError, CorpusError
from bertlab.extend import TokenStoreError

OBJECT_STORE = 500 * 2**20
"""Bytes of memory for batches on their way, where Ray is started on this machine."""

BLOCK = 2**24
"""Bytes of text that one task takes; with a batch or two, half the time is lost between tasks."""

Row = dict[str, Any]
Batch = TypeVar("Batch")
Result = TypeVar("Result")


def map_on_ray(
    ray: ModuleType,
    workers: int | None,
    read: Callable[[], Iterable[Batch]],
    function: Callable[[Batch], Result],
) -> Generator[Result, None, None]:
    """Call a function for each batch of a corpus by tasks of Ray, in order.

    Args:
        ray: the module, connected.
        workers: tasks at a time, over all nodes; None for as many as there are CPUs.
        read: reads the corpus; called on one of the nodes, and again if that is lost.
        function: sent to each worker once.

    Raises:
        CorpusError: the corpus cannot be read on the node that reads it.
        TokenStoreError: Ray gave up.
    """
    data = _ordered(ray)

    def read_all(_: Row) -> Iterator[Row]:
        try:
            for batch in read():
                yield {"batch": pickle.dumps(batch)}
        except CorpusError as error:
            node = socket.gethostname()
            raise CorpusError(f"{error} (read on the node {node} of Ray)") from None

    def call(row: Row) -> Row:
        batch = pickle.loads(row["batch"])  # noqa: S301  of the task above
        return {"result": pickle.dumps(function(batch))}

    # the reader asks for no CPU: it mostly waits, and so remains a task of its own
    read_by = {"compute": data.TaskPoolStrategy(1), "num_cpus": 0}
    called_by = {"compute": data.TaskPoolStrategy(workers), "num_cpus": 1}
    batches = data.from_items([{"corpus": 0}]).flat_map(read_all, **read_by)
    try:
        for row in batches.map(call, **called_by).iter_rows():
            yield pickle.loads(row["result"])  # noqa: S301
    except ray.exceptions.RayError as error:
        raise _cause(error) from None


def _ordered(ray: ModuleType) -> Any:  # noqa: ANN401
    """Return Ray Data, set to keep the order and to be silent."""
    data = importlib.import_module(f"{ray.__name__}.data")
    context = data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.target_max_block_size = BLOCK
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    return data


def _cause(error: Exception) -> BertlabError:
    """Return our own error behind one of Ray's; else say what Ray says."""
    found: Any = getattr(error, "cause", None)
    while found is not None:
        if isinstance(found, BertlabError):
            return found
        found = getattr(found, "cause", None) or found.__cause__
    reason = " ".join(str(error).split())[-300:]
    return TokenStoreError(f"--executor ray: Ray gave up: {reason}; nothing was written")
