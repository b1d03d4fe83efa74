"""A text file that is there when it is whole, or not at all."""

import contextlib
from pathlib import Path
from typing import IO

from bertlab.errors import OutputError
from bertlab.whole_folder import partial_path, remove_abandoned


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
