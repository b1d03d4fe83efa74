"""Which keys of ``data`` each of several heads has of its own, and how errors name them.

The parts are made as if each were alone, and speak of ``data.train``. Where it stands is added
here: ``data.heads.mrpc.train``.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence

from bertlab.errors import BertlabError

# keys of data that each head has of its own
OWN_DATA = (
    *("source", "train", "validation", "test"),
    *("columns", "format", "delimiter", "quote"),
    *("empty", "label_names", "validation_fraction"),
)


def naming_head(name: str) -> contextlib.AbstractContextManager[None]:
    """Say ``data.heads.NAME.train`` for ``data.train`` in what a block says of an error.

    Args:
        name: of the head; it stands before an error that names no key of its own.
    """
    return naming(f"heads.{name}", OWN_DATA, f"head {name}")


@contextlib.contextmanager
def naming(place: str, names: Sequence[str], called: str) -> Iterator[None]:
    """Put ``place`` into the keys of an error; else say whose it is.

    Args:
        place: below ``data`` and ``model``.
        names: keys of ``data`` that are there.
        called: what an error without such a key begins with.
    """
    try:
        yield
    except BertlabError as error:
        # "data.source: found none" -> "data.heads.mrpc.source: found none"
        text = re.sub(rf"\bdata\.({'|'.join(names)})\b", rf"data.{place}.\1", str(error))
        text = re.sub(r"\bmodel\.head\.", f"model.{place}.", text)
        raise type(error)(text if f".{place}" in text else f"{called}: {text}") from error
