"""How long a study still takes, by the runs of it that are done."""

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from bertlab_studies.execute.run_state import State, read_states, read_status
from bertlab_studies.execute.schedule import Change
from bertlab_studies.plan.plan import PlannedRun

_TO_COME = (State.WAITING, State.READY, State.BEGUN, State.RESUMABLE, State.RUNNING)


class TimeLeft:
    """Counts the runs of a study that are done, and estimates the seconds of those to come.

    A run takes as long as those of its stage and variant did, or else those of its stage. Of a
    stage of which none is done nothing is known, so that the estimate is too low then.

    Args:
        plan: the runs, parents before their children.
        study_dir: directory of the study.

    Attributes:
        states: of the runs, by id.
    """

    def __init__(self, plan: Sequence[PlannedRun], study_dir: Path) -> None:
        self.plan = plan
        self.study_dir = study_dir
        self.states = read_states(plan, study_dir)
        self._took: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        self._begun: dict[str, float] = {}
        self._workers = 1
        for run in plan:
            if self.states[run.id] is State.DONE:
                self._add(run)

    def note(self, change: Change) -> None:
        """Take over what happened to a run."""
        run = change.run
        self.states[run.id] = change.state
        if change.state is State.RUNNING:
            self._begun.setdefault(run.id, time.monotonic())
            self._workers = max(self._workers, len(self._begun))
            return
        self._begun.pop(run.id, None)
        if change.state is State.DONE:
            self._add(run)

    def words(self) -> str:
        """Return ``7 of 45 runs done, 1:02:03 left``; ``over 1:02:03 left`` if it is too low."""
        states = dict(self.states)  # changes come from another thread
        done = sum(state is State.DONE for state in states.values())
        text = f"{done} of {len(states)} runs done"
        expected = [self._expected(run) for run in self.plan if states[run.id] in _TO_COME]
        known = [seconds for seconds in expected if seconds is not None]
        if not known:
            return text
        # no worker is faster than the longest run
        left = max(sum(known) / self._workers, *known)
        over = "over " if len(known) < len(expected) else ""
        return f"{text}, {over}{duration(left)} left"

    def _expected(self, run: PlannedRun) -> float | None:
        """Return the seconds that a run still takes; None if no run of its stage is done."""
        like = self._took.get((run.stage, run.variant)) or self._took.get((run.stage,))
        if like is None:
            return None
        gone = time.monotonic() - self._begun[run.id] if run.id in self._begun else 0.0
        return max(0.0, fmean(like) - gone)

    def _add(self, run: PlannedRun) -> None:
        seconds = read_status(run, self.study_dir, State.DONE).seconds
        if seconds:  # none where it was taken over from another study
            for key in ((run.stage, run.variant), (run.stage,)):
                self._took[key].append(seconds)


def duration(seconds: float) -> str:
    """Return a number of seconds as people read it: ``4:05``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
