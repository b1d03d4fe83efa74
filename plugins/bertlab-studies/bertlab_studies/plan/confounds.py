"""Comparisons whose figure is not of what they are asked: known from configs, before a run."""

from bertlab.extend import Config
from bertlab_studies.plan.budget import Cost, pretraining_cost
from bertlab_studies.plan.measures import deciding_metric
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.stages import last_config
from bertlab_studies.plan.study_file import BASE, StudyConfig
from bertlab_studies.plan.zero_shot import SECTION, is_zero_shot

_ALIKE = 0.01  # costs of a step


def confounds(study: StudyConfig, plan: Plan) -> list[str]:
    """Return a line for each way in which a study compares something else than it seems to.

    Args:
        study: what is asked.
        plan: its runs.
    """
    configs = {each.name: last_config(plan.configs[each.name, BASE]) for each in study.variants}
    found = [*_equal_time(configs), *_other_masking(study, plan, configs)]
    return [f"confounded: {line}" for line in found]


def _equal_time(configs: dict[str, Config]) -> list[str]:
    """Return a line if variants have equal time, and need as much for a step."""
    if any(config["trainer"]["max_time"] is None for config in configs.values()):
        return []
    one_step = [_cost_of_a_step(config) for config in configs.values()]
    known = [each.flops for each in one_step if each is not None]
    if len(known) < len(one_step) or max(known) > (1 + _ALIKE) * min(known):
        return []
    return [
        "all variants have the same time and cost the same for a step, so that only the load of "
        "the machine makes their steps differ; expected budget: {steps: N}"
    ]


def _cost_of_a_step(config: Config) -> Cost | None:
    """Return what one step of a pre-training costs, if its config tells."""
    trainer = {**config["trainer"], "max_steps": 1, "max_time": None}
    return pretraining_cost({**config, "trainer": trainer, "max_tokens": None})


def _other_masking(study: StudyConfig, plan: Plan, configs: dict[str, Config]) -> list[str]:
    """Return a line if variants mask otherwise, and a loss at 80/10/10 decides."""
    masking = [config["model"].get("objectives", {}).get("mlm") for config in configs.values()]
    if None in masking or all(each == masking[0] for each in masking):
        return []
    keys = sorted(
        key
        for key in {key for each in masking for key in each or {}}
        if len({repr((each or {}).get(key)) for each in masking}) > 1
    )
    return [
        f"variants differ in objectives.mlm.{', '.join(keys)}, and {each.name} takes the loss of "
        "15 % of the tokens at 80/10/10, which favours who was trained so; metric: mask_loss is "
        "that of [MASK] alone, which all were trained on"
        for each in study.evaluations
        if is_zero_shot(config := plan.configs[study.baseline, each.name])
        and config[SECTION]["evaluation"] == "held_out_loss"
        and deciding_metric(study, plan, each)[0] == "loss"
    ]
