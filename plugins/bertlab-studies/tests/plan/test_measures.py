"""Which measures decide, and which end of each is better: said by the metric, or by the study."""

from pathlib import Path
from typing import Any

import pytest
import torchmetrics
from torch import Tensor

from bertlab.extend import end_of, is_among
from bertlab.heads.sentences import SingleSentence
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.plugins.index import forget_installed
from bertlab_studies.errors import StudyError
from bertlab_studies.plan import measures
from bertlab_studies.plan.measures import (
    deciding_metric,
    known_ends,
    pretraining_measures,
    shares_of,
    why_untestable,
)
from bertlab_studies.plan.plan import make_plan
from bertlab_tasks.span import Span
from bertlab_tasks.tagging import Tagging
from small_study import opened, read_study
from tests.plugins.strange_packages import install


class Unsaid(torchmetrics.Metric):
    is_share = True

    def update(self, preds: Tensor, target: Tensor) -> None: ...

    def compute(self) -> Tensor: ...


FURTHER = {"mae": torchmetrics.MeanAbsoluteError(), "r2": torchmetrics.R2Score(), "odd": Unsaid()}


def chosen(folder: Path, **entry: Any) -> tuple[str, str]:
    config = read_study(folder, evaluate={"x": {"config": "task.yaml", **entry}})
    return deciding_metric(config, make_plan(config), config.evaluations[0])


def test_the_metric_itself_tells_which_end_is_better() -> None:
    ends = known_ends(SingleSentence(regression=True), FURTHER)
    assert ends == {"loss": "min", "pearson": "max", "spearman": "max", "mae": "min", "r2": "max"}
    assert known_ends(MaskedLM(), {}) == {"loss": "min", "accuracy": "max", "perplexity": "min"}
    assert known_ends(Tagging(), {})["recall"] == "max"
    assert known_ends(Span(), {})["exact_match"] == "max"
    assert "best_f1_threshold" not in known_ends(Span(), {})


@pytest.mark.parametrize(
    ("name", "end"), [("f1/PER", "max"), ("dev/f1/PER", "max"), ("dev/loss", "min"), ("PER", None)]
)
def test_names_of_sets_and_types_are_looked_through(name: str, end: str | None) -> None:
    assert end_of(name, {"loss": "min", "f1": "max"}) == end


def test_a_share_is_declared_and_not_guessed_from_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = {"odd": Unsaid(), "odd_f1": torchmetrics.MeanAbsoluteError()}
    monkeypatch.setattr(measures, "build_metrics", lambda model: further)
    study = read_study(tmp_path, evaluate={"x": {"config": "task.yaml"}})
    shares = shares_of(study, make_plan(study), study.evaluations[0])
    names = ("odd", "dev/accuracy", "majority_accuracy", "f1/PER", "odd_f1", "matthews", "loss")
    assert [is_among(name, shares) for name in names] == [True] * 4 + [False] * 3
    monkeypatch.setattr(SingleSentence, "shares", ("matthews",))
    shares = shares_of(study, make_plan(study), study.evaluations[0])
    assert [is_among(name, shares) for name in names] == [True, *[False] * 4, True, False]
    entry = {"metric": {"name": "odd", "better": "lower"}, "margin": 2}
    with pytest.raises(StudyError, match=r"odd is a share, one point of it is 0\.01"):
        chosen(tmp_path, **entry)
    assert chosen(tmp_path, **entry | {"metric": "odd_f1"}) == ("odd_f1", "min")


def test_an_evaluation_by_an_error_is_better_where_it_is_lower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "build_metrics", lambda model: FURTHER)
    assert chosen(tmp_path) == ("accuracy", "max")
    assert chosen(tmp_path, metric="mae") == ("mae", "min")
    assert chosen(tmp_path, metric="loss") == ("loss", "min")
    assert chosen(tmp_path, metric={"name": "odd", "better": "lower"}) == ("odd", "min")
    assert chosen(tmp_path, metric={"name": "mae", "better": "higher"}) == ("mae", "max")
    with pytest.raises(StudyError, match=r"found 'odd' .*mae.*\{name: odd, better: lower\}"):
        chosen(tmp_path, metric="odd")


def test_a_metric_without_a_known_end_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(
        StudyError, match=r"evaluate\.x\.metric: found 'acuracy'; did you mean 'acc"
    ):
        opened(tmp_path, evaluate={"x": {"config": "task.yaml", "metric": "acuracy"}})
    pairs: dict[str, Any] = {"evaluation": "minimal_pairs", "data": "blimp"}
    with pytest.raises(StudyError, match=r"evaluate\.b\.metric: found 'ties' "):
        opened(tmp_path, evaluate={"b": {**pairs, "metric": "ties"}})
    opened(tmp_path, evaluate={"b": {**pairs, "metric": "phenomenon_accuracy"}})
    opened(tmp_path, evaluate={"b": {**pairs, "metric": {"name": "ties", "better": "lower"}}})


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ({"name": "mae"}, r"metric: found .*expected the name of a metric, or \{name"),
        (
            {"name": "mae", "better": "min"},
            r"metric\.better: found 'min', expected higher or lower",
        ),
        ({"name": "", "better": "lower"}, r"metric\.name: found ''"),
        (3, r"metric: found 3"),
    ],
)
def test_a_metric_that_is_none(metric: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=message):
        chosen(tmp_path, metric=metric)


SAME = {
    "rate": {"optimizer.learning_rate": 0.1},
    "encoder": {"encoder.num_hidden_layers": 1},
    "batch": {"data.batch_size": 4},
}
OTHER = {
    "data.corpus": {"data.corpus": "elsewhere.txt"},
    "data.vocab_size": {"data.vocab_size": 200},
    "data.max_seq_length": {"data.max_seq_length": 16},
    "init_from": {"init_from": "other"},
}


LEFT_TO_RIGHT = {"objectives": ["clm"], "encoder.causal": True}


def test_accuracies_of_objectives_that_the_baseline_lacks_are_shares(tmp_path: Path) -> None:
    config = read_study(tmp_path, variants={"as is": {}, "left to right": LEFT_TO_RIGHT})
    found = pretraining_measures(config, make_plan(config))
    assert "accuracy" in found.shares["clm"]
    assert found.ends["clm"]["loss"] == "min"


@pytest.mark.parametrize("variant", SAME)
def test_losses_decide_where_what_is_held_out_is_the_same(variant: str, tmp_path: Path) -> None:
    config = read_study(tmp_path, variants={"as is": {}, variant: SAME[variant]})
    found = pretraining_measures(config, make_plan(config))
    assert (found.deciding, found.reason) == (("mlm loss", "nsp loss"), "")


@pytest.mark.parametrize("key", [key for key in OTHER if key != "init_from"])
def test_losses_of_other_text_or_tasks_describe(key: str, tmp_path: Path) -> None:
    config = read_study(tmp_path, variants={"as is": {}, "other": OTHER[key]})
    found = pretraining_measures(config, make_plan(config))
    assert (found.deciding, found.reason) == ((), f"variants differ in {key}")
    with pytest.raises(StudyError, match=f"decide: found 'mlm loss', but variants differ in {key}"):
        opened(tmp_path, variants={"as is": {}, "other": OTHER[key]}, decide=["mlm loss"])


@pytest.mark.parametrize(
    ("other", "deciding", "reason"),
    [
        ({"objectives": ["mlm"]}, ("mlm loss",), "not all variants have the same nsp"),
        ({"objectives.mlm.rate": 0.4}, ("nsp loss",), "not all variants have the same mlm"),
        (
            {"objectives": ["clm"], "encoder.causal": True},
            (),
            "not all variants have the same mlm; not all variants have the same nsp",
        ),
    ],
)
def test_what_all_variants_are_asked_decides(
    other: dict[str, Any], deciding: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    """What does next-sentence prediction buy the masked LM?"""
    variants = {"both": {}, "other": other}
    config = read_study(tmp_path, variants=variants)
    found = pretraining_measures(config, make_plan(config))
    assert (found.deciding, found.reason) == (deciding, reason)
    lost = "mlm" if deciding == ("nsp loss",) else "nsp"
    with pytest.raises(StudyError, match=f"decide: found '{lost} loss', but not all variants"):
        opened(tmp_path, variants=variants, decide=[f"{lost} loss"])


def test_what_moves_the_text_of_the_others_lets_their_losses_describe(tmp_path: Path) -> None:
    variants = {"both": {}, "mlm and order": {"objectives": ["mlm", "nsp", "order"]}}
    groups = {"bertlab.objectives": {"order": "moving_objective:Order"}}
    code = (
        "from bertlab import NextSentencePrediction\n"
        "class Order(NextSentencePrediction):\n    rearranges_input = True\n"
    )
    install(tmp_path, "moving", groups, {"moving_objective": code})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        forget_installed()
        config = read_study(tmp_path, variants=variants)
        found = pretraining_measures(config, make_plan(config))
    forget_installed()
    assert (found.deciding, found.reason) == ((), "variants differ in objectives.order")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, ""),
        ({"seeds": 1}, "one seed tests nothing"),
        ({"variants": {"both": {}, "mlm": {"objectives.mlm.rate": 0.4}}}, ""),
        # nsp alone reads text that is not masked
        ({"variants": {"both": {}, "nsp": {"objectives": ["nsp"]}}}, "not all variants have"),
        ({"variants": {"both": {}, "mlm": {"objectives": ["mlm"]}}}, ""),
        ({"variants": {"both": {}, "ltr": LEFT_TO_RIGHT}}, "not all variants have the same mlm"),
        ({"variants": {"both": {}, "ltr": LEFT_TO_RIGHT}, "evaluate": {"x": "task.yaml"}}, ""),
        ({"variants": {"a": {}, "b": {"data.vocab_size": 200}}}, "variants differ in data.vocab_"),
    ],
)
def test_what_cannot_be_tested_is_known_before_it_runs(
    content: dict[str, Any], message: str, tmp_path: Path
) -> None:
    study = opened(tmp_path, **content)
    found = why_untestable(study.config, study.planned)
    assert bool(found) == bool(message)
    assert message in found
    assert found in study.plan().note


def test_decide_names_measures_of_pre_training(tmp_path: Path) -> None:
    variants = {"as is": {}, "other": SAME["rate"]}
    with pytest.raises(StudyError, match="found 'mlm los'; did you mean 'mlm loss'"):
        opened(tmp_path, variants=variants, decide=["mlm los"])
    with pytest.raises(StudyError, match=r"decide: found 'mlm loss', expected a list"):
        opened(tmp_path, variants=variants, decide="mlm loss")
    with pytest.raises(StudyError, match="decide: found 'mlm loss', but base is no pre-training"):
        opened(
            tmp_path,
            base="task.yaml",
            variants={"a": {}, "b": {"from_scratch": True}},
            decide=["mlm loss"],
        )
    config = read_study(tmp_path, variants=variants, decide=["mlm perplexity"])
    assert pretraining_measures(config, make_plan(config)).deciding == ("mlm perplexity",)
