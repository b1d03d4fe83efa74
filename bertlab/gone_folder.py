"""A folder that was there and is not any more: its disk vanished, or somebody removed it."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from bertlab.errors import OutputError


@contextlib.contextmanager
def naming_gone_folder(folder: Path, hint: Callable[[], str] = str) -> Iterator[None]:
    """Say of a file that is not found inside the block that its folder is gone, if it is.

    Args:
        folder: that was there before.
        hint: returns what is said after it.

    Raises:
        OutputError: the folder is not there any more.
    """
    try:
        yield
    except FileNotFoundError as error:
        if folder.is_dir():
            raise
        raise OutputError(f"{folder}: is gone (its disk?){hint()}") from error
