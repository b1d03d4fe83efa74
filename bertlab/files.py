"""A folder that is there when it is whole, or not at all: made beside its place, then renamed.

What a kill or a vanished disk leaves beside it is removed when the same is written again.

A text file that is there when it is whole, or not at all.

A folder that was there and is not any more: its disk vanished, or somebody removed it.
"""

import contextlib
import glob
import os
import platform
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bertlab.errors import OutputError


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder to fill, which takes the place of ``target`` at the end of the block.

    Where ``target`` is, there may be nothing, or an empty folder. An exception in the block removes
    what was written.

    Raises:
        OutputError: it cannot be written, as on a full disk.
    """
    folder = partial_path(target)
    try:
        remove_abandoned(target)
        folder.mkdir(parents=True)
        yield folder
        publish_folder(folder, target)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{target}: cannot be written: {reason}; nothing is left") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # gone already if it was renamed


def partial_path(target: Path) -> Path:
    """Return an unused temporary name beside ``target``; it tells host and process."""
    return target.with_name(f"{_own_prefix(target)}{os.getpid()}.{secrets.token_hex(4)}.partial")


def _own_prefix(target: Path) -> str:
    return f".{target.name}.{platform.node()}."


def remove_abandoned(target: Path) -> None:
    """Remove what killed processes of this host left beside ``target``."""
    own = _own_prefix(target)
    for left in target.parent.glob(f"{glob.escape(own)}*.partial"):
        process = left.name.removeprefix(own).split(".")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            _remove(left)


def _remove(left: Path) -> None:
    if left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            left.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def publish_folder(folder: Path, target: Path) -> None:
    """Make everything in ``folder`` durable, then rename it to ``target`` in one step."""
    for path in [*folder.rglob("*"), folder]:
        _fsync(path)
    folder.rename(target)
    _fsync(target.parent)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class WholeFile:
    """Written beside its place, in UTF-8, and put there by :meth:`close`.

    Args:
        path: its place; folders on the way are made.

    Raises:
        OutputError: here and in the methods, if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._failed = f"{path}: cannot be written"
        try:
            if path.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(path)
            self._partial = partial_path(path)
            self._file: IO[str] = self._partial.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise OutputError(f"{self._failed}: {error.strerror}") from None

    def write(self, text: str) -> None:
        """Add text."""
        try:
            self._file.write(text)
        except OSError as error:
            raise OutputError(f"{self._failed}: {error.strerror}") from None

    def close(self) -> None:
        """Put the file in its place, over what was there."""
        try:
            self._file.close()
            self._partial.replace(self.path)
        except OSError as error:
            raise OutputError(f"{self._failed}: {error.strerror}") from None

    def discard(self) -> None:
        """Leave no file."""
        with contextlib.suppress(OSError):  # of the last write, on a full disk
            self._file.close()
        self._partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> Path:
    """Write a file, or leave none behind, and return its path.

    Raises:
        OutputError: if it cannot be written.
    """
    file = WholeFile(path)
    try:
        file.write(text)
        file.close()
    except BaseException:
        file.discard()
        raise
    return path


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
