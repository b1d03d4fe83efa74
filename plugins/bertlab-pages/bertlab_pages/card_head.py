"""The head of a model card that the hub reads: YAML between two lines of ``---``.

Only what the run recorded is there. Language and license no run knows: the head has a line for
each to be filled in.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from bertlab.extend import Results, is_hub_name

# what the hub calls the task of a class; BertModel and others have none
PIPELINES = {
    "ForPreTraining": "fill-mask",
    "ForMaskedLM": "fill-mask",
    "LMHeadModel": "text-generation",
    "ForCausalLM": "text-generation",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
USES = {
    "fill-mask": "Guessing masked tokens, and fine-tuning on labelled rows.",
    "text-generation": "Continuing a text, and fine-tuning on labelled rows.",
    "text-classification": "Giving a text, or two, one of the classes above or a score.",
    "token-classification": "Giving each word of a text a tag.",
    "question-answering": "Finding the answer to a question in a given text.",
    "multiple-choice": "Choosing one of several continuations of a text.",
    "sentence-similarity": "Comparing texts by their vectors.",
}
_EXAMPLES = {
    "fill-mask": "A {mask} text.",
    "text-generation": "Once",
    "text-classification": "A text.",
    "token-classification": "A text of words.",
    "question-answering": "",
}
# objectives whose layers the classes of transformers have; None: those of all of a run
_OBJECTIVES: dict[str, frozenset[str] | None] = {
    "ForPreTraining": None,
    "ForMaskedLM": frozenset({"mlm"}),
    "LMHeadModel": frozenset({"clm"}),
    "ForCausalLM": frozenset({"clm"}),
}
_METRICS = {
    "accuracy": "accuracy",
    "f1": "f1",
    "macro_f1": "f1",
    "micro_f1": "f1",
    "precision": "precision",
    "recall": "recall",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "exact_match": "exact_match",
    "perplexity": "perplexity",
}
_UNKNOWN = (
    "# license: not recorded; that of the weights it began from and of the texts, such as mit\n"
    "# language: not recorded, such as en\n"
)


def is_on_hub(place: str) -> bool:
    """Whether a place is called OWNER/NAME as on the hub, and is no folder here."""
    return "/" in place and is_hub_name(place) and not Path(place).exists()


def pipeline_of(architecture: str) -> str | None:
    """Return the hub's name of the task of a class of ``transformers``."""
    return next((tag for end, tag in PIPELINES.items() if architecture.endswith(end)), None)


def pipeline_code(tag: str | None, library: str, arguments: str, mask: str) -> str | None:
    """Return lines of Python that predict with a pipeline; None if there is none."""
    if library != "transformers" or tag not in _EXAMPLES:
        return None
    given = _EXAMPLES[tag].format(mask=mask)
    text = repr(given) if given else "question='Where?', context='A text.'"
    return (
        "from transformers import pipeline\n\n"
        f'predict = pipeline("{tag}", model={arguments})\n'
        f"print(predict({text}))"
    )


def own_results(
    results: Results,
    architecture: str,
    head: str | None,
    heads: Mapping[str, Any],
    objectives: Collection[str],
) -> Results:
    """Return the figures of what was exported, without those of other tasks and of evaluations.

    Args:
        results: by ``task/metric``.
        architecture: class of ``transformers``.
        head: plugin of the exported head; None of objectives.
        heads: of the run that has several, by name; empty otherwise.
        objectives: of the run, by name; an evaluation along it, such as BLiMP, is none.
    """
    if head is not None:
        of_plugin = {name for name, each in heads.items() if _plugin(each) == head}
        kept: Collection[str] = of_plugin if heads else {head}
        kept = kept if len(kept) == 1 else ()  # of which of them nobody has noted
    else:
        end = next((each for each in _OBJECTIVES if architecture.endswith(each)), None)
        named = None if end is None else _OBJECTIVES[end]
        kept = {*objectives, "loss"} if named is None else named  # their sum
    return {name: value for name, value in results.items() if name.partition("/")[0] in kept}


def _plugin(settings: object) -> object:
    return settings.get("name") if isinstance(settings, Mapping) else settings


def card_head(
    name: str,
    library: str,
    pipeline: str | None,
    base_model: str | None,
    datasets: Sequence[str],
    data_name: str | None,
    results: Results,
) -> Markup:
    """Return the lines between the two ``---``; what is not known is left out.

    Args:
        name: of the model.
        library: that loads it.
        pipeline: the hub's name of its task.
        base_model: the model of the hub that it began from.
        datasets: of the hub that it was trained on.
        data_name: what the rows or texts are called that it was scored on.
        results: its own figures by ``task/metric``.
    """
    head: dict[str, Any] = {"library_name": library}
    if pipeline is not None:
        head["pipeline_tag"] = pipeline
    if base_model is not None:
        head["base_model"] = base_model
    if datasets:
        head["datasets"] = list(datasets)
    figures = [
        (hub, key, value)
        for key, value in results.items()
        if (hub := _METRICS.get(key.rpartition("/")[2])) and math.isfinite(value)
    ]
    if pipeline == "fill-mask":  # next-sentence prediction is another task
        figures = [each for each in figures if each[1].startswith("mlm/")]
    if figures:
        head["metrics"] = sorted({hub for hub, _, _ in figures})
    head["tags"] = ["bertlab"]
    if figures and pipeline is not None:
        data = data_name or "held-out rows"
        head["model-index"] = [
            {
                "name": name,
                "results": [
                    {
                        "task": {"type": pipeline},
                        "dataset": {"type": data, "name": f"{data}, held out"},
                        "metrics": [
                            {"type": hub, "value": round(value, 6), "name": key}
                            for hub, key, value in figures
                        ],
                    }
                ],
            }
        ]
    text: str = yaml.safe_dump(head, sort_keys=False, width=1 << 20)
    return Markup(text + _UNKNOWN)  # noqa: S704  YAML of ASCII, quoted where need be
