"""The hooks of studies; read by every command, so that it imports little."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab import hookspec
from bertlab_pages.hookspecs import ReportSection, are_sections

if TYPE_CHECKING:
    from bertlab_studies.study_scores import StudyScores


@hookspec
def bertlab_report_sections(scores: "StudyScores") -> list[ReportSection]:  # type: ignore[empty-body]
    """Return sections to add to the report of a study.

    ``scores`` has all figures.
    """


@hookspec
def bertlab_study_ended(
    study_dir: Path, done: Sequence[str], failed: Mapping[str, str], files: Sequence[Path]
) -> None:
    """Take note of a study whose runs have ended, such as to announce it.

    Called once by ``bertlab study run`` and ``bertlab ablate``, as the last, unless they were
    stopped or runs are left. Whatever it raises is a warning.

    ``done`` are the ids of its runs, ``failed`` those that failed, or that need one which did, and
    why. ``files`` are those of the report, its page first; none if no run is done.
    """


RETURNS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bertlab_report_sections": ("a list of ReportSection", are_sections)
}
