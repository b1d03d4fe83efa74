"""The hook that adds to a study's report; read by every command, so that it imports little."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertlab import hookspec

if TYPE_CHECKING:
    from bertlab_studies.study_scores import StudyScores


@dataclass(frozen=True)
class ReportSection:
    """A section that a package adds to a study's report.

    Attributes:
        title: its heading.
        text: paragraphs, plain text.
        headings: of the columns of a table below; no table if empty.
        rows: its cells, one for each column.
    """

    title: str
    text: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@hookspec
def bertlab_report_sections(scores: "StudyScores") -> list[ReportSection]:  # type: ignore[empty-body]
    """Return sections to add to the report of a study.

    ``scores`` has all figures.
    """


def _are_sections(found: Any) -> bool:  # noqa: ANN401  whatever a package returns
    return isinstance(found, list | tuple) and all(
        isinstance(each, ReportSection) for each in found
    )


RETURNS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bertlab_report_sections": ("a list of ReportSection", _are_sections)
}
