"""Sections that packages add to reports and pages; read by every command, so it imports little."""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertlab import PluginError, hookspec

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class ReportSection:
    """A section that a package adds to a study's report or to the page of a run.

    All of it is plain text, which each format escapes.

    Attributes:
        title: its heading.
        text: paragraphs, plain text.
        headings: of the columns of a table below; no table if empty.
        rows: its cells, one for each column.
        picture: a PNG file's content below that; none if empty.

    Raises:
        PluginError: the picture is no PNG.
    """

    title: str
    text: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    picture: bytes = b""

    def __post_init__(self) -> None:
        if self.picture and not self.picture.startswith(_PNG):
            raise PluginError(f"section {self.title!r}: expected a PNG as its picture")

    @property
    def picture_url(self) -> str:
        """The picture as a URL that holds all of it; empty without one."""
        return f"data:image/png;base64,{b64encode(self.picture).decode()}" if self.picture else ""


@hookspec
def bertlab_page_sections(  # type: ignore[empty-body]
    run_dir: Path, results: dict[str, float]
) -> list[ReportSection]:
    """Return sections to add to ``run.html`` of a run that has come to its end.

    ``results`` are the held-out metrics of the last step by ``task/metric``.
    """


def are_sections(found: Any) -> bool:  # noqa: ANN401  whatever a package returns
    """Whether a hook has returned sections."""
    return isinstance(found, list | tuple) and all(
        isinstance(each, ReportSection) for each in found
    )


RETURNS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bertlab_page_sections": ("a list of ReportSection", are_sections)
}
