"""The runs of a study on the screen: what each will cost, and how far each is."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bertlab.console import print_table
from bertlab.studies.execute.live_table import HEADINGS, status_row
from bertlab.studies.execute.run_state import read_states
from bertlab.studies.plan.budget import pretraining_cost
from bertlab.studies.plan.plan import Plan, PlannedRun


def print_plan(plan: Plan, study: Path) -> None:
    """Print each run with its cost, if its config tells, and its state.

    Args:
        plan: the runs.
        study: its directory.
    """
    runs = plan.in_order()
    states = read_states(runs, study)
    rows, tokens, flops = [], 0.0, 0.0
    for run in runs:
        cost = pretraining_cost(plan.configs[run.variant, run.stage])
        if cost is not None:
            tokens, flops = tokens + cost.tokens, flops + cost.flops
        shown = ("", "") if cost is None else (f"{cost.tokens:.3g}", f"{cost.flops:.3g}")
        rows.append((run.id, str(states[run.id]), *shown))
    print_table(f"{study}: {len(rows)} runs", rows, ("run", "state", "tokens", "FLOPs"), 2)
    sys.stdout.write(
        f"together at most {tokens:.3g} tokens, {flops:.3g} FLOPs, and what is known when the "
        "data is read (empty places)\n"
    )


def print_status(runs: Sequence[PlannedRun], study: Path) -> None:
    """Print the state of each run, its last step, and what it took so far.

    Args:
        runs: parents before their children.
        study: its directory.
    """
    states = read_states(runs, study)
    rows = [status_row(run, study, states[run.id]) for run in runs]
    print_table(str(study), rows, HEADINGS)
