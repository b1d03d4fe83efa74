"""Shows a study while it runs: a live table on a terminal, a line for each event elsewhere."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from bertlab.extend import is_share, read_results, read_shares, shown_figure, visible
from bertlab_studies.execute.run_state import State, is_done, read_status, reused_from
from bertlab_studies.execute.schedule import Change, OnChange
from bertlab_studies.execute.time_left import TimeLeft, duration
from bertlab_studies.plan.plan import PlannedRun

HEADINGS = ("run", "state", "step", "elapsed", "result")
_ENDED = 8  # runs that ended, of which the table shows the last
_UNTOLD = ("loss", "perplexity")  # metrics that a run is shown by only if it has no other


@contextmanager
def watch(plan: Sequence[PlannedRun], study_dir: Path) -> Iterator[OnChange]:
    """Show what happens in a study; yields what is to be told of each change.

    Args:
        plan: the runs, parents before their children.
        study_dir: directory of the study.
    """
    console = Console()
    if not console.is_terminal:
        left = TimeLeft(plan, study_dir)

        def tell(change: Change) -> None:
            left.note(change)
            line = event_line(change, study_dir)
            line += f"; {left.words()}" if change.state is State.DONE else ""
            console.print(visible(line), soft_wrap=True, markup=False, highlight=False)

        yield tell
        return
    table = LiveTable(plan, study_dir)
    with Live(get_renderable=table.render, console=console, refresh_per_second=1, transient=False):
        yield table.note


def event_line(change: Change, study_dir: Path) -> str:
    """Return a change in one line, with time of day, and what it took and gave if it ended."""
    line = f"{time.strftime('%H:%M:%S')} {change.run.id}: {change.text}"
    if change.state is State.DONE:
        status = read_status(change.run, study_dir, change.state)
        result = main_result(change.run.directory(study_dir))
        line += f" in {duration(status.seconds)}" + (f", {result}" if result else "")
    return line


class LiveTable:
    """Rows of the runs that are at work, failed, or ended last, below the number in each state.

    Args:
        plan: the runs, parents before their children.
        study_dir: directory of the study.
    """

    def __init__(self, plan: Sequence[PlannedRun], study_dir: Path) -> None:
        self.study_dir = study_dir
        self.runs = {run.id: run for run in plan}
        self.left = TimeLeft(plan, study_dir)
        self.texts: dict[str, str] = {}
        self._ended: dict[str, None] = {}  # in order

    def note(self, change: Change) -> None:
        """Take over a change."""
        self.left.note(change)
        self.texts[change.run.id] = change.text
        self._ended.pop(change.run.id, None)  # so that it goes to the end
        if change.state in (State.DONE, State.FAILED):
            self._ended[change.run.id] = None

    def render(self) -> RenderableType:
        """Return the table as it is now."""
        states = dict(self.left.states)  # changes come from another thread
        counts = Counter(states.values())
        told = ", ".join(f"{counts[state]} {state}" for state in State if counts[state])
        working = [run for run, state in states.items() if state is State.RUNNING]
        failed = [run for run, state in states.items() if state is State.FAILED]
        ended = [run for run in list(self._ended)[-_ENDED:] if run not in failed]
        rows = [self._row(run, states[run]) for run in (*ended, *failed[-_ENDED:], *working)]
        head = f"{self.study_dir}: {told}; {self.left.words()}"
        return Group(escape(visible(head)), _table(rows))

    def _row(self, run: str, state: State) -> Sequence[str]:
        return status_row(self.runs[run], self.study_dir, state, self.texts.get(run, ""))


def status_row(run: PlannedRun, study_dir: Path, state: State, text: str = "") -> Sequence[str]:
    """Return the cells of a run.

    Args:
        run: of the study.
        study_dir: directory of the study.
        state: of the run.
        text: the last that is known of it; shown if it failed.
    """
    status = read_status(run, study_dir, state)
    step = "" if status.step is None else f"{status.step + 1}"  # logs count from 0
    if state is State.DONE:
        step = ""
    elif step and run.steps is not None:
        step += f"/{run.steps}"
    result = text or status.last_line if state is State.FAILED else ""
    return (
        run.id,
        state_cell(run, study_dir, state)
        + (f", {status.attempts} attempts" if status.attempts > 1 else ""),
        step,
        duration(status.seconds) if status.attempts else "",
        result or main_result(run.directory(study_dir)),
    )


def state_cell(run: PlannedRun, study_dir: Path, state: State) -> str:
    """Return the state of a run, with the study that it was taken over from."""
    origin = reused_from(run.directory(study_dir)) if state is State.DONE else ""
    return f"{state}, from {Path(origin).name}" if origin else str(state)


def main_result(directory: Path) -> str:
    """Return the first metric of a finished run that says how good it is; else an empty string."""
    if not is_done(directory):
        return ""
    results = read_results(directory)
    names = [name for name in results if not _metric(name).startswith(("unigram", "majority"))]
    names.sort(key=lambda name: _metric(name) in _UNTOLD)  # stable: else the run's order
    if not names:
        return ""
    first, shares = names[0], read_shares(directory)
    shown = shown_figure(_metric(first), results[first], is_share(first, shares))
    return f"{first.replace('/', ' ')} {shown}"


def _metric(name: str) -> str:
    return name.rpartition("/")[2]


def _table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table()
    for heading in HEADINGS:
        right = heading in ("step", "elapsed")
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(visible(each)) for each in row))
    return table
