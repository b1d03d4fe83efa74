"""What the runs of a study cost for each seed, by the record of runs where there is one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bertlab_studies.plan.budget import Cost
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.run_costs import stage_cost

if TYPE_CHECKING:
    from bertlab_studies.study import Study


@dataclass(frozen=True)
class SeedCosts:
    """Runs of all variants with one seed, and what they cost.

    Attributes:
        once: number and cost of pre-trainings, and of evaluations that train nothing.
        each: of fine-tunings, each counted once.
        are_known: whether the costs are of all of them.
    """

    once: tuple[int, Cost]
    each: tuple[int, Cost]
    are_known: bool

    def of(self, seeds: int, finetunings: int) -> tuple[int, Cost]:
        """Return the runs of a study with so many of each, and their cost."""
        (once, fixed), (each, repeated) = self.once, self.each
        return seeds * (once + finetunings * each), Cost(
            seeds * (fixed.tokens + finetunings * repeated.tokens),
            seeds * (fixed.flops + finetunings * repeated.flops),
        )


def seed_costs(study: "Study", pilot: "Study | None") -> SeedCosts:
    """Return what one seed costs: by the record of runs, of the pilot too, else by the config."""
    config, plan, seen, known = study.config, study.planned, set(), True
    numbers, totals = [0, 0], [Cost(0, 0), Cost(0, 0)]  # once, each
    for variant in config.variants:
        for stage in config.stages:
            run = plan.run_of(variant.name, stage, config.seeds[0])
            if run.id in seen:
                continue
            seen.add(run.id)
            place = int(stage != BASE and run.trains)
            cost = stage_cost(plan, study.study_dir, variant.name, stage, config.seeds)
            if cost is None and pilot is not None and _is_in(pilot, study, variant.name, stage):
                seeds = pilot.config.seeds
                cost = stage_cost(pilot.planned, pilot.study_dir, variant.name, stage, seeds)
            known &= cost is not None
            numbers[place] += 1
            if cost is not None:
                before = totals[place]
                totals[place] = Cost(before.tokens + cost.tokens, before.flops + cost.flops)
    return SeedCosts((numbers[0], totals[0]), (numbers[1], totals[1]), known)


def _is_in(pilot: "Study", study: "Study", variant: str, stage: str) -> bool:
    """Tell whether a pilot has a stage with the same config, of a model with the same config."""
    there, here = pilot.planned.configs, study.planned.configs
    return (
        (variant, stage) in there
        and there[variant, stage] == here[variant, stage]
        and there[variant, BASE]["model"] == here[variant, BASE]["model"]
    )
