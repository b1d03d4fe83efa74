"""One run of a study: what it is called, what it waits for, and the command that does it."""

from dataclasses import dataclass
from pathlib import Path

WEIGHTS = "{weights}"  # in the arguments of a run: where its parent's weights are


@dataclass(frozen=True)
class PlannedRun:
    """One ``bertlab fit``.

    Attributes:
        id: its directory below ``runs`` of the study; readable, ends in a hash of what it computes.
        stage: ``base``, or the name of an evaluation.
        variant: the first variant that needs it; others may share it.
        seed: of the run.
        arguments: of ``bertlab fit``, without the run directory; ``{weights}`` stands for the
            directory that its parent leaves.
        parent: id of the run whose weights it starts from, or None.
        steps: optimiser steps, if the config says how many.
    """

    id: str
    stage: str
    variant: str
    seed: int
    arguments: tuple[str, ...]
    parent: str | None = None
    steps: int | None = None

    def directory(self, study: Path) -> Path:
        """Return where ``bertlab fit`` keeps the run."""
        return study / "runs" / self.id

    def log(self, study: Path) -> Path:
        """Return where what it prints is kept."""
        return study / "logs" / f"{self.id}.log"
