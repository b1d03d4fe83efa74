"""The hooks of an export; read by every command, so that torch is not imported here."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab import hookspec

if TYPE_CHECKING:
    from bertlab import Pretrained
    from bertlab_interop.contract import ExportReport, ModelAddress

Push = Callable[[Path, str | None], str]
"""Uploads a folder to a branch, the main one if None; returns the address of the commit."""


@hookspec
def bertlab_export_files(
    folder: Path,
    model: "Pretrained",
    report: "ExportReport",
    loading_code: list[tuple[str, str]],
    address: "ModelAddress",
) -> None:
    """Write further files into the folder of an export, such as a model card.

    Called when all files of the form are there, and before the folder takes its place. ``model`` is
    what was exported, ``report`` what was written; ``loading_code`` has libraries and the lines of
    Python by which they load it from ``address``.
    """


@hookspec
def bertlab_push(repository: str, private: bool) -> Push:  # type: ignore[empty-body]
    """Return what uploads the folder of an export: ``bertlab export --push REPOSITORY``.

    Called before anything is read; the first package that has the hook is taken. A
    ``CommandError`` refuses the name. ``private``: a repository that is made is the user's alone.
    """


RETURNS: dict[str, tuple[str, Callable[[Any], bool]]] = {"bertlab_push": ("a function", callable)}
