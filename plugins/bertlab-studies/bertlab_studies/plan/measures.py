"""Which measures decide a study, and which end of each is better; known before a run starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchmetrics import Metric

from bertlab import nearest
from bertlab.api import Head, Labels, Objective, Task
from bertlab.extend import (
    Config,
    build_metrics,
    build_tasks,
    end_of,
    is_among,
    known_shares,
    largest_of,
)
from bertlab.extend import known_ends as better_ends
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.plan import FREE, Plan
from bertlab_studies.plan.stages import last_config
from bertlab_studies.plan.study_file import BASE, Evaluation, StudyConfig
from bertlab_studies.plan.zero_shot import plugin_of

Ends = dict[str, str]  # "min" or "max" by the name of a metric


@dataclass(frozen=True)
class PretrainingMeasures:
    """Which held-out metrics of pre-training decide.

    Attributes:
        deciding: names of measures, such as ``mlm loss``.
        ends: by objective, the better end of each metric that tells it.
        shares: by objective, the metrics that are from 0 to 1.
        reason: why none of them decides; empty if one does, or there are none.
    """

    deciding: tuple[str, ...] = ()
    ends: dict[str, Ends] = field(default_factory=dict)
    shares: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reason: str = ""

    @property
    def why_described(self) -> str:
        """Why other measures describe only: what decides, and what variants do not share."""
        decides = f"{' and '.join(self.deciding)} decide{'s' * (len(self.deciding) == 1)}"
        return "; ".join(([decides] if self.deciding else []) + ([self.reason] * bool(self.reason)))


def heads_of(config: Config) -> dict[str, Head]:
    """Return the heads that a config fine-tunes, by name, without layers; {} of a pre-training."""
    tasks = build_tasks(config["model"])
    return {name: task for name, task in tasks.items() if isinstance(task, Head)}


def head_of(config: Config) -> Head | None:
    """Return the head that a config fine-tunes, of several the first; None of a pre-training."""
    return next(iter(heads_of(config).values()), None)


def deciding_metric(study: StudyConfig, plan: Plan, evaluation: Evaluation) -> tuple[str, str]:
    """Return the metric that an evaluation compares variants by, and which end of it is better.

    Raises:
        StudyError: if the metric does not tell which end is better, and the study file neither, or
            its margin is that of no share.
    """
    metric, end = _deciding_metric(study, plan, evaluation)
    if is_among(metric, shares_of(study, plan, evaluation)) and (evaluation.margin or 0) >= 1:
        raise StudyError(
            f"study {study.name}: evaluate.{evaluation.name}.margin: found {evaluation.margin:g}, "
            f"expected less than 1: {metric} is a share, one point of it is 0.01"
        )
    return metric, end


def shares_of(study: StudyConfig, plan: Plan, evaluation: Evaluation | None) -> tuple[str, ...]:
    """Return the metrics of an evaluation, or of the base's head, that are from 0 to 1."""
    if evaluation is not None and evaluation.zero_shot is not None:
        return plugin_of(evaluation.zero_shot).shares
    config = plan.configs[study.baseline, BASE if evaluation is None else evaluation.name]
    further = build_metrics(config["model"])
    shares = (shares_of_task(head, further) for head in heads_of(config).values())
    return tuple(name for each in shares for name in each)


def shares_of_task(task: Task, further: Mapping[str, Metric]) -> tuple[str, ...]:
    """Return the metrics of a task without layers that are from 0 to 1.

    Args:
        task: without layers.
        further: metrics of the config.
    """
    return known_shares(task, {**further, **_own_metrics(task)})


def _deciding_metric(study: StudyConfig, plan: Plan, evaluation: Evaluation) -> tuple[str, str]:
    if evaluation.zero_shot is not None:
        plugin = plugin_of(evaluation.zero_shot)
        own = plugin.monitor
        ends: Ends = {**plugin.better, own[0]: own[1]}
    else:
        config = plan.configs[study.baseline, evaluation.name]
        head = head_of(config)
        assert head is not None, "make_plan() refuses an evaluation without a head"
        own, ends = head.monitor, known_ends(head, build_metrics(config["model"]))
    if evaluation.metric is None:
        return own
    end = evaluation.better or end_of(evaluation.metric, ends)
    if end is None:
        name = evaluation.metric
        raise StudyError(
            f"study {study.name}: evaluate.{evaluation.name}.metric: found {name!r}"
            f"{nearest(name, ends)} (it is known which end is better of: {', '.join(ends)}); of "
            f"another metric say it: metric: {{name: {name}, better: lower}}, or better: higher"
        )
    return evaluation.metric, end


def known_ends(task: Task, further: Mapping[str, Metric]) -> Ends:
    """Return the better end of each metric that tells it.

    Args:
        task: without layers.
        further: metrics of the config.
    """
    return better_ends(task, {**further, **_own_metrics(task)})


def _own_metrics(task: Task) -> dict[str, Metric]:
    if isinstance(task, Head) and task.labels is None:
        task.labels = Labels.of(["0", "1"])  # two classes have every metric that more have
    try:
        return task.metrics()
    except Exception:  # a plugin's, which needs what only build() makes
        return {}


def pretraining_measures(study: StudyConfig, plan: Plan) -> PretrainingMeasures:
    """Return which held-out metrics of pre-training decide.

    Those of an objective can where all variants have it with the same settings and the same
    held-out text, which the same objectives corrupt or rearrange: its sequences and masks follow
    from its name. Then those of ``decide`` do; if the study has neither that nor evaluations, what
    each is judged by.

    Raises:
        StudyError: if ``decide`` names what is not there, or what cannot be compared.
    """
    where = f"study {study.name}: decide"
    config = last_config(plan.configs[study.baseline, BASE])
    if head_of(config) is not None:
        if study.decide:
            raise StudyError(f"{where}: found {study.decide[0]!r}, but base is no pre-training")
        return PretrainingMeasures()
    tasks, further = build_tasks(config["model"]), build_metrics(config["model"])
    described = _objectives(study, plan) | tasks  # those that the baseline lacks, too
    ends = {name: known_ends(task, further) for name, task in described.items()}
    shares = {name: shares_of_task(task, further) for name, task in described.items()}
    names = [f"{name} {metric}" for name in tasks for metric in ends[name]]
    for name in study.decide:
        if name not in names:
            raise StudyError(
                f"{where}: found {name!r}{nearest(name, names)} (there are: {', '.join(names)})"
            )
    different = {name: held_out_differences(study, plan, name) for name in tasks}
    reason = _why_described(different)
    for name in study.decide:
        own = different[name.partition(" ")[0]]
        if own:
            raise StudyError(
                f"{where}: found {name!r}, but {_why_described({name.partition(' ')[0]: own})}; "
                "expected the same in all of them, or no decide"
            )
    if study.decide:
        return PretrainingMeasures(study.decide, ends, shares, reason)
    if study.evaluations:
        return PretrainingMeasures((), ends, shares, reason or "the evaluations decide")
    deciding = tuple(
        f"{name} {task.monitor[0]}" for name, task in tasks.items() if not different[name]
    )
    return PretrainingMeasures(deciding, ends, shares, reason)


def _objectives(study: StudyConfig, plan: Plan) -> dict[str, Task]:
    models = (last_config(plan.configs[each.name, BASE])["model"] for each in study.variants)
    sections = [{"objectives": model.get("objectives")} for model in models]
    return {name: task for model in sections for name, task in build_tasks(model).items()}


def why_untestable(study: StudyConfig, plan: Plan) -> str:
    """Return why no comparison of a study can be tested, and what would mend it; or nothing."""
    if len(study.variants) < 2 or study.is_crossed:
        return ""
    if len(study.seeds) < 2:
        return "one seed tests nothing, as it does not tell how much seeds differ; give two or more"
    measures = pretraining_measures(study, plan)
    if study.evaluations or measures.deciding or not measures.ends:
        return ""
    runs = len(study.variants) * len(study.seeds)
    return (
        f"no comparison can be tested: {measures.reason}; an evaluation decides: held_out_loss on "
        f"a text of your own scores each of {runs} runs in seconds (--evaluate '{{loss: "
        "{evaluation: held_out_loss, data: TEXT}}', or evaluate in a study file), "
        f"finetune/quickstart trains {runs} classifiers for a minute or so each (--evaluate "
        "finetune/quickstart)"
    )


def _why_described(different: Mapping[str, Sequence[str]]) -> str:
    """Return why the losses of some objectives are not compared; nothing if all are."""
    lacking = [name for name, keys in different.items() if f"objectives.{name}" in keys]
    keys = dict.fromkeys(key for found in different.values() for key in found)
    others = [key for key in keys if key.removeprefix("objectives.") not in lacking]
    said = [f"variants differ in {', '.join(others)}"] if others else []
    return "; ".join([f"not all variants have the same {name}" for name in lacking] + said)


def held_out_differences(study: StudyConfig, plan: Plan, objective: str) -> list[str]:
    """Return the config keys in which variants differ, of those that a held-out loss depends on."""
    configs = [plan.configs[variant.name, BASE] for variant in study.variants]
    found = [_held_out(last_config(config), objective) for config in configs]
    # a dict as a set that keeps its order
    keys = dict.fromkeys(key for each in found for key in each)
    return [key for key in keys if any(each.get(key) != found[0].get(key) for each in found)]


def _held_out(config: Config, objective: str) -> Config:
    """Return what decides the predictions of an objective that are held out, and their scores."""
    kept = {
        f"data.{key}": value
        for key, value in config["data"].items()
        if key not in (*FREE, "batch_size", "batch_tokens")
    }
    if "data.max_seq_length" in kept:  # training may begin with shorter ones, evaluation does not
        kept["data.max_seq_length"] = largest_of(config["data"]["max_seq_length"])
    sections = config["model"]["objectives"]
    for name, task in build_tasks({"objectives": sections}).items():
        # mlm beside sop reads text whose sentences are swapped; nsp beside mlm reads masked text,
        # which is masked alike whatever mlm's settings are, but for `evaluation: training`
        if isinstance(task, Objective) and (task.rearranges_input or task.corrupts_input):
            as_trained = (sections[name] or {}).get("evaluation") == "training"
            decides = task.rearranges_input or as_trained
            kept[f"objectives.{name}"] = sections[name] if decides else "there"
    kept[f"objectives.{objective}"] = sections.get(objective)
    if not config["data"].get("tokenizer"):  # that of an earlier model, if there is one
        kept["init_from"] = config["model"].get("init_from")
    limit = config["trainer"].get("limit_val_batches")
    if limit not in (None, 1.0):  # a number of batches
        kept["data.batch_size"] = config["data"].get("batch_size")
        kept["data.batch_tokens"] = config["data"].get("batch_tokens")
    return kept | {"trainer.limit_val_batches": limit}


def uses_pretraining(plan: Plan, variant: str) -> bool:
    """Return whether a variant is scored on the weights of its base runs.

    It is not if all its evaluations start from new random weights: ``from_scratch`` takes only
    sizes and tokenizer.
    """
    evaluations = [
        config
        for (name, stage), config in plan.configs.items()
        if name == variant and stage != BASE
    ]
    return not evaluations or not all(
        config.get("model", {}).get("from_scratch") for config in evaluations
    )
