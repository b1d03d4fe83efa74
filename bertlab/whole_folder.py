"""A folder that is there when it is whole, or not at all: made beside its place, then renamed.

What a kill or a vanished disk leaves beside it is removed when the same is written again.
"""

import contextlib
import glob
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

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
