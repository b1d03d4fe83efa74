"""Tokenizing a corpus on Ray Data: on this machine, or on the nodes of a cluster.

One task reads the text, as one process reads it here, and hands batches of documents to tasks on
all nodes. What they return comes back in order, so that the store depends neither on how many
there are, nor on those that Ray runs again because a worker or a node was lost.
"""

import importlib
import logging
import pickle
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from bertlab.api.source import RawDocument
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.corpus.prepare_worker import EncodedBatch, encode_batch
from bertlab.errors import BertlabError, CorpusError, TokenStoreError

OBJECT_STORE = 500 * 2**20
"""Bytes of memory for batches on their way, where Ray is started on this machine."""

BLOCK = 2**24
"""Bytes of text that one task takes; with a batch or two, half the time is lost between tasks."""

Batches = Callable[[], Iterable[Sequence[RawDocument]]]
Row = dict[str, Any]


def encode_on_ray(
    ray: ModuleType, batches: Batches, tokenizer: Tokenizer, language: str, workers: int | None
) -> Generator[EncodedBatch, None, None]:
    """Tokenize batches by tasks of Ray, in order.

    Args:
        ray: the module, connected.
        batches: reads the corpus; called on one of the nodes, and again if that is lost.
        tokenizer: with which; sent to each worker once.
        language: as in :func:`bertlab.data.corpus.documents.split_sentences`.
        workers: tasks at a time, over all nodes; None for as many as there are CPUs.

    Raises:
        CorpusError: the corpus cannot be read on the node that reads it.
        TokenStoreError: Ray gave up.
    """
    data = _ordered(ray)

    def read(_: Row) -> Iterator[Row]:
        try:
            for batch in batches():
                yield {"documents": pickle.dumps(batch)}
        except CorpusError as error:
            node = socket.gethostname()
            raise CorpusError(f"{error} (read on the node {node} of Ray)") from None

    def encode(row: Row) -> Row:
        documents = pickle.loads(row["documents"])  # noqa: S301  of the task above
        return {"encoded": pickle.dumps(encode_batch(documents, tokenizer, language))}

    # the reader asks for no CPU: it mostly waits, and so remains a task of its own
    read_by = {"compute": data.TaskPoolStrategy(1), "num_cpus": 0}
    encoded_by = {"compute": data.TaskPoolStrategy(workers), "num_cpus": 1}
    documents = data.from_items([{"corpus": 0}]).flat_map(read, **read_by)
    try:
        for row in documents.map(encode, **encoded_by).iter_rows():
            yield pickle.loads(row["encoded"])  # noqa: S301
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
