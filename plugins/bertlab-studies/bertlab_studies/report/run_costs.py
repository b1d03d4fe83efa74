"""What the runs of a variant cost: tokens, FLOPs, seconds."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertlab.extend import (
    MANIFEST_FILE,
    Config,
    explain_damage,
    read_config,
    read_object,
    refusing_config,
)
from bertlab_studies.execute.run_state import State, is_done, read_status
from bertlab_studies.plan.budget import Cost, measured_cost, pretraining_cost, sum_of
from bertlab_studies.plan.measures import head_of, uses_pretraining
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.study_file import BASE, StudyConfig
from bertlab_studies.plan.variants import Variant
from bertlab_studies.plan.zero_shot import is_zero_shot
from bertlab_studies.study_scores import VariantScores


def add_costs(
    found: VariantScores, study: StudyConfig, plan: Plan, folder: Path, variant: Variant
) -> None:
    """Add costs and times of a variant's runs.

    Args:
        found: what they are added to.
        study: what was asked.
        plan: its runs.
        folder: of the study.
        variant: of the study.
    """
    pretrained = uses_pretraining(plan, variant.name)
    stages = study.stages if pretrained else [each for each in study.stages if each != BASE]
    for seed in study.seeds:
        runs = [run for stage in stages for run in plan.runs_of(variant.name, stage, seed).values()]
        if all(is_done(run.directory(folder)) for run in runs):
            found.seconds[seed] = sum(read_status(run, folder, State.DONE).seconds for run in runs)
    costs = [stage_cost(plan, folder, variant.name, stage, study.seeds) for stage in stages]
    counts = [len(plan.runs_of(variant.name, stage, study.seeds[0])) for stage in stages]
    if pretrained:
        costs[0] = _until_step(costs[0], plan.configs[variant.name, BASE], variant.from_step)
        found.tokens = None if costs[0] is None else costs[0].tokens
    known = [n * cost.flops for n, cost in zip(counts, costs, strict=True) if cost is not None]
    found.flops = sum(known) if len(known) == len(costs) else None


def stage_cost(
    plan: Plan, folder: Path, variant: str, stage: str, seeds: Iterable[int]
) -> Cost | None:
    """Return what a stage cost by the record of a run, or will by its config."""
    for seed in seeds:
        directory = plan.run_of(variant, stage, seed).directory(folder)  # all cost about the same
        measured = _measured(directory)
        if measured is not None:
            return measured
    config = plan.configs[variant, stage]
    trains_head = not is_zero_shot(config) and head_of(config) is not None
    return None if trains_head else pretraining_cost(config)


def _measured(directory: Path) -> Cost | None:
    """Return what a run costs by its record, with its earlier stages; None without one."""
    costs = []
    for place in (*directory.glob("stages/*/"), directory):
        if not ((place / MANIFEST_FILE).is_file() and (place / "config.yaml").is_file()):
            return None
        manifest = _read(place / MANIFEST_FILE)
        if "training_tokens" not in manifest:
            return None
        with explain_damage(place / MANIFEST_FILE):
            for key in ("training_tokens", "mean_sequence_length"):
                if not math.isfinite(manifest[key]):
                    raise ValueError(f"{key}: found {manifest[key]}, expected a finite number")
        config = place / "config.yaml"
        with refusing_config(str(config), "model"):
            costs.append(measured_cost(read_config(config), manifest))
    return sum_of(costs)


def _until_step(cost: Cost | None, config: Config, step: int | None) -> Cost | None:
    """Return the share of a pre-training's cost that is spent at a step; all of it if None."""
    if cost is None or step is None:
        return cost
    steps = config["trainer"]["max_steps"]
    return Cost(cost.tokens * step / steps, cost.flops * step / steps) if steps > 0 else None


def _read(path: Path) -> dict[str, Any]:
    return read_object(path)
