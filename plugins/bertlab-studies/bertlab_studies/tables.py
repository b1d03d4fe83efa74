"""What a study plans and how far it is, as tables: printed, as HTML, or row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertlab.extend import print_table, read_request, say, yaml_inline
from bertlab_studies.execute.live_table import HEADINGS, state_cell, status_row
from bertlab_studies.execute.run_state import State, read_states
from bertlab_studies.plan.budget import pretraining_cost
from bertlab_studies.plan.plan import (
    Plan,
    PlannedRun,
    variant_settings,
)
from bertlab_studies.plan.study_file import StudyConfig
from bertlab_studies.reuse import Reusable


@dataclass(frozen=True)
class Table:
    """A table of texts, which a notebook shows.

    Attributes:
        title: a line above it.
        headings: of the columns.
        rows: cells, one for each column.
        figures: how many columns, counted from the last, hold figures.
        note: a line below it.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: int = 0
    note: str = ""

    def records(self) -> list[dict[str, str]]:
        """Return each row by the headings, as ``pandas.DataFrame`` takes it."""
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def print(self) -> None:
        """Print it, with its title and note."""
        print_table(self.title, self.rows, self.headings, self.figures)
        if self.note:
            say(self.note)

    def _repr_html_(self) -> str:
        from bertlab_pages.tables import titled_table  # noqa: PLC0415  for notebooks only

        return titled_table(self.title, self.headings, self.rows, self.figures, self.note)


def left_out_lines(study: StudyConfig) -> list[str]:
    """Return a line for keys of a file that no run of some variants has.

    They belong to an encoder, head or optimizer in whose place these variants name another.
    """
    found: dict[str, list[str]] = {}
    trained = [each for each in study.evaluations if each.zero_shot is None]
    for variant in study.variants:
        asked = [study.arguments_of(variant)]
        asked += [each.arguments_of(variant) for each in trained]
        lines = [line for arguments in asked for line in read_request(arguments).left_out]
        for line in dict.fromkeys(lines):
            found.setdefault(line, []).append(variant.name)
    return [f"{', '.join(variants)}: {line}" for line, variants in found.items()]


def plan_table(plan: Plan, study_dir: Path, shows: str, reusable: Sequence[Reusable] = ()) -> Table:
    """Return each run with its cost, if its config tells, and its state.

    Args:
        plan: of the study.
        study_dir: directory of the study.
        shows: a line on what the study can show.
        reusable: pre-trainings that other studies have.
    """
    runs = plan.in_order()
    states = read_states(runs, study_dir)
    there = {each.run.id: each.study_dir.name for each in reusable if not each.problem}
    rows, tokens, flops, left = [], 0.0, 0.0, 0.0
    for run in runs:
        cost = pretraining_cost(plan.configs[run.variant, run.stage])
        if cost is not None:
            tokens, flops = tokens + cost.tokens, flops + cost.flops
            if states[run.id] is not State.DONE and run.id not in there:
                left += cost.flops
        shown = ("", "") if cost is None else (f"{cost.tokens:.3g}", f"{cost.flops:.3g}")
        state = state_cell(run, study_dir, states[run.id])
        rows.append((run.id, f"done in {there[run.id]}" if run.id in there else state, *shown))
    others = "".join(f"\n{line}" for line in reuse_lines(reusable) if "not reused" in line)
    costs = f"together at most {tokens:.3g} tokens, {flops:.3g} FLOPs"
    costs += f" ({left:.3g} left)" if left < flops else ""
    costs += ", and what is known when the data is read (empty places)"
    return Table(
        f"{study_dir}: {len(rows)} runs",
        ("run", "state", "tokens", "FLOPs"),
        tuple(rows),
        figures=2,
        note=f"{costs if tokens else 'costs are known when the data is read'}{others}\n{shows}",
    )


def run_records(plan: Plan, study_dir: Path) -> list[dict[str, Any]]:
    """Return each run, parents before their children, with its cost and state as values."""
    runs = plan.in_order()
    states = read_states(runs, study_dir)
    records = []
    for run in runs:
        cost = pretraining_cost(plan.configs[run.variant, run.stage])
        named = {key: getattr(run, key) for key in ("id", "stage", "variant", "seed", "parent")}
        known = {} if cost is None else {"tokens": cost.tokens, "flops": cost.flops}
        records.append({**named, "steps": run.steps, "state": str(states[run.id]), **known})
    return records


def reuse_lines(reusable: Sequence[Reusable]) -> list[str]:
    """Return a line for each run of another study: that it is taken over, or why it is not."""
    return [
        f"not reused: {each.run.id} of {each.study_dir}: {each.problem}"
        if each.problem
        else f"reused: {each.run.id}, from {each.study_dir}"
        for each in reusable
    ]


def status_table(runs: Sequence[PlannedRun], study_dir: Path) -> Table:
    """Return the state of each run, its last step, and what it took so far.

    Args:
        runs: parents before their children.
        study_dir: directory of the study.
    """
    states = read_states(runs, study_dir)
    rows = [tuple(status_row(run, study_dir, states[run.id])) for run in runs]
    return Table(str(study_dir), HEADINGS, tuple(rows))


def variants_table(plan: Plan, config: StudyConfig) -> Table:
    """Return each variant with its values of the config keys in which variants differ."""
    settings = variant_settings(plan, config)
    keys = tuple(settings[config.baseline])
    rows = [
        (
            f"{name} (baseline)" if name == config.baseline else name,
            *(yaml_inline(settings[name][key]) for key in keys),
        )
        for name in settings
    ]
    seeds = ", ".join(map(str, config.seeds))
    if config.factors:
        of = (f"of {each.name} {', '.join(map(str, each.seeds))}" for each in config.factors)
        seeds = " × ".join(of)
    if config.finetune_seeds is not None:
        seeds += f", of fine-tuning {', '.join(map(str, config.finetune_seeds))}"
    title = f"{config.name}: {len(plan.runs)} runs, seeds {seeds}"
    return Table(title, ("variant", *keys), tuple(rows))
