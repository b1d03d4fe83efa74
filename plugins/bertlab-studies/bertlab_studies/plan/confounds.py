"""Comparisons whose figure is not of what they are asked: known from configs, before a run."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from bertlab import BertlabError, IntArray
from bertlab.extend import Config, Corpus, read_raw_documents
from bertlab_evaluations.domain import (
    describe_domain,
    divergence,
    divergence_of_parts,
    is_far,
    natural_divergence,
)
from bertlab_evaluations.entries import read_entries
from bertlab_evaluations.evaluate import read_entry_rows
from bertlab_studies.plan.budget import Cost, pretraining_cost
from bertlab_studies.plan.measures import deciding_metric
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.stages import last_config
from bertlab_studies.plan.study_file import BASE, StudyConfig
from bertlab_studies.plan.zero_shot import SECTION, is_zero_shot

_ALIKE = 0.01  # costs of a step
_WORDS = 500_000  # of a text that are looked at before a run
_FILES = 50  # of a corpus
_MASKS = ("rate", "unit", "mask_share", "random_share", "keep_share")
_NONE = "no masked LM"
_STANDARD = "15 % of the tokens at 80/10/10, which favours who was trained so"
_TAKES = {
    "loss": f"the loss of {_STANDARD}",
    "accuracy": f"the accuracy of {_STANDARD}",
    "perplexity": f"the perplexity of {_STANDARD}",
    "mask_loss": "the loss at [MASK] beside tokens that are replaced, which favours who was "
    "trained so",
    "trained_loss": "the loss of each variant at its own masks, which are not equally hard",
    "pll_loss": "the loss of single pieces, which favours who was trained on them",
}


def confounds(study: StudyConfig, plan: Plan) -> list[str]:
    """Return a line for each way in which a study compares something else than it seems to.

    Args:
        study: what is asked.
        plan: its runs.
    """
    configs = {each.name: last_config(plan.configs[each.name, BASE]) for each in study.variants}
    found = [*_equal_time(configs), *_other_masking(study, plan)]
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


def readings(study: StudyConfig, plan: Plan) -> list[str]:
    """Return a line for each held-out loss that decides though variants mask otherwise, and why."""
    differing = _masking_differences(study, plan)
    lines = []
    for name, metric in _held_out_losses(study, plan):
        if differing and metric in _fair(differing):
            keys = ", ".join(f"objectives.mlm.{key}" for key in differing)
            nearer = "; lower rates are nearer to it than higher ones" * ("rate" in differing)
            lines.append(
                f"{name}: {metric} decides, as variants differ in {keys}: each token is masked "
                f"alone in the text itself, which is how no variant was trained{nearer}"
            )
    return lines


def other_domains(study: StudyConfig, plan: Plan) -> list[str]:
    """Return a line for each held-out text that is not of the domain of the training text.

    By the first words of each of its files, as white space and punctuation part them. Of a source
    or a prepared corpus the runs tell.

    Args:
        study: what is asked.
        plan: its runs.
    """
    config = last_config(plan.configs[study.baseline, BASE])
    asked = [name for name, _ in _held_out_losses(study, plan)]
    numbers: dict[str, int] = {}
    trained = _numbered(_first_words(config["data"]), numbers) if asked else np.empty(0, np.int64)
    parts = divergence_of_parts(trained) if len(trained) else {}
    lines = []
    for name in asked if parts else ():
        entry = plan.configs[study.baseline, name][SECTION]
        with contextlib.suppress(BertlabError):  # whose run says it
            (found,) = read_entries({name: dict(entry)}, "evaluate")
            texts = (str(row.values["text"]) for row in read_entry_rows(found))
            held_out = _numbered(islice(_words(texts), _WORDS), numbers)
            here, there = (
                np.bincount(each, minlength=len(numbers)) for each in (held_out, trained)
            )
            apart, natural = divergence(here, there), natural_divergence(parts, len(held_out))
            if natural is not None and is_far(apart, natural):
                lines.append(f"confounded: {name}: {describe_domain(apart, natural)}")
    return lines


def _first_words(data: Config) -> Iterator[str]:
    """Yield the first words of the files of a corpus; nothing of other sources."""
    sources = data.get("corpus") or []
    if isinstance(sources, dict):  # a source with settings
        return
    places = [Path(each) for each in ([sources] if isinstance(sources, str) else sources)]
    if any((each / "store.json").is_file() for each in places):
        return
    found = [file for each in places for file in ([each] if each.is_file() else each.rglob("*"))]
    files = sorted(file for file in found if file.is_file())
    chosen = files[:: max(1, -(-len(files) // _FILES))]
    settings = {key: data[key] for key in ("text_column", "errors") if key in data}
    for file in chosen:
        with contextlib.suppress(BertlabError):
            corpus = Corpus([str(file)], data.get("corpus_format", "auto"), **settings)
            texts = (raw.text for raw in read_raw_documents(corpus))
            yield from islice(_words(texts), _WORDS // len(chosen))


def _words(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from re.findall(r"\w+|[^\w\s]", text.lower())


def _numbered(words: Iterable[str], numbers: dict[str, int]) -> IntArray:
    """Return the number of each word; new words get the next ones."""
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], np.int64)


def _other_masking(study: StudyConfig, plan: Plan) -> list[str]:
    """Return a line if variants mask otherwise, and a loss decides that favours one of them."""
    differing = _masking_differences(study, plan)
    if not differing:
        return []
    keys = ", ".join(f"objectives.mlm.{key}" for key in differing)
    fair = _fair(differing)
    why = "where a token is a word of its own" if "unit" in differing else "in the text itself"
    return [
        f"variants differ in {keys}, and {name} takes {_TAKES[metric]}; metric: {fair[0]} is the "
        f"loss of tokens that are masked alone, {why}"
        for name, metric in _held_out_losses(study, plan)
        if metric in _TAKES and metric not in fair
    ]


def _masking_differences(study: StudyConfig, plan: Plan) -> list[str]:
    """Return what of the masks of training is not the same in all variants; [] without masks."""
    configs = [last_config(plan.configs[each.name, BASE]) for each in study.variants]
    masking = [config["model"].get("objectives", {}).get("mlm", _NONE) for config in configs]
    if _NONE in masking:
        return []
    return [key for key in _MASKS if len({repr((each or {}).get(key)) for each in masking}) > 1]


def _fair(differing: Sequence[str]) -> tuple[str, ...]:
    """Return the readings of the held-out loss that favour no variant, the best first."""
    # a model of whole words has never seen one piece that is masked among the others
    return ("word_pll_loss",) if "unit" in differing else ("pll_loss", "word_pll_loss")


def _held_out_losses(study: StudyConfig, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield name and deciding metric of each evaluation of a held-out loss."""
    for each in study.evaluations:
        config = plan.configs[study.baseline, each.name]
        if is_zero_shot(config) and config[SECTION]["evaluation"] == "held_out_loss":
            yield each.name, deciding_metric(study, plan, each)[0]
