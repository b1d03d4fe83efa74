"""What a new run takes over from a fine-tuned model, and what it says about the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from bertlab.api.examples import Labels
from bertlab.api.task import TaskContext
from bertlab.checkpoints.pretrained_model import load
from bertlab.checkpoints.restore import load_weights, read_pretrained
from bertlab.checkpoints.tensor_files import LoadReport
from bertlab.encoders.bert import BertEncoder
from bertlab.model.build import build_tasks
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import OptimizerConfig
from tests.checkpoints.peers import SIZES, TOKENIZER, peer
from tests.checkpoints.test_fine_tuned import write_run
from tests.conftest import Command

MNLI = Labels(("contradiction", "entailment", "neutral"), (3, 4, 5))
RTE = Labels(("entailment", "not_entailment"), (8, 7))


def started(
    source: Path, head_config: dict[str, Any], labels: Labels | None, **changes: Any
) -> tuple[BertModule, LoadReport, dict[str, torch.Tensor]]:
    """A module that was started from the source, the report, and its head as it was before."""
    torch.manual_seed(5)
    arguments = SIZES | changes
    encoder = BertEncoder(**arguments)
    context = TaskContext(encoder, TOKENIZER, labels=labels)
    module = BertModule(encoder, build_tasks({"head": head_config}), context, OptimizerConfig())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    return module, load_weights(read_pretrained(str(source)), module), before


def assert_new(
    module: BertModule, report: LoadReport, before: dict[str, torch.Tensor], *words: str
) -> None:
    """The encoder is the source's, the head untouched, and one note says why."""
    state = module.state_dict()
    for name in [name for name in state if name.startswith("tasks.")]:
        assert torch.equal(state[name], before[name])
        assert name in report.newly_initialized
    changed = "encoder.layers.0.output.weight"
    assert changed in report.loaded
    assert not torch.equal(state[changed], before[changed])
    assert len(report.notes) == 1
    for word in words:
        assert word in report.notes[0]


def test_mnli_to_rte_starts_a_new_classifier(tmp_path: Path) -> None:
    write_run(tmp_path / "mnli.ckpt", {"name": "sentence_pair"}, MNLI)
    module, report, before = started(tmp_path / "mnli.ckpt", {"name": "sentence_pair"}, RTE)
    words = ("labels differ", "neutral in the source", "entailment, not_entailment here")
    assert_new(module, report, before, *words)
    assert "tasks.sentence_pair.classifier.weight" in report.unused


def test_equal_labels_keep_the_classifier(tmp_path: Path) -> None:
    _, head = write_run(tmp_path / "a.ckpt", {"name": "sentence_pair"}, MNLI)
    recounted = Labels(MNLI.names, (1, 1, 1))
    module, report, _ = started(tmp_path / "a.ckpt", {"name": "sentence_pair"}, recounted)
    found = module.state_dict()["tasks.sentence_pair.classifier.weight"]
    assert torch.equal(found, head.state_dict()["classifier.weight"])
    assert report.notes == report.unused == report.newly_initialized == []


@pytest.mark.parametrize(
    ("config", "labels", "words"),
    [
        ({"name": "sentence_pair"}, Labels(MNLI.names[::-1], (1, 1, 1)), "labels differ"),
        ({"name": "sentence_pair", "regression": True}, None, "none here"),
    ],
    ids=["order", "regression"],
)
def test_other_classes_start_anew(
    tmp_path: Path, config: dict[str, Any], labels: Labels | None, words: str
) -> None:
    write_run(tmp_path / "a.ckpt", {"name": "sentence_pair"}, MNLI)
    assert_new(*started(tmp_path / "a.ckpt", config, labels), words)


def test_other_layers_start_anew(tmp_path: Path) -> None:
    tags = Labels(("O", "B-PER"), (9, 1))
    config = {"name": "feature_tagging", "layers": [-1]}
    write_run(tmp_path / "a.ckpt", config | {"hidden_size": 8}, tags)
    module, report, before = started(tmp_path / "a.ckpt", config | {"hidden_size": 6}, tags)
    assert_new(module, report, before, "other layers", "classifier.weight")


def test_another_task_of_a_run_is_unused(tmp_path: Path) -> None:
    write_run(tmp_path / "a.ckpt", {"name": "span"}, None)
    _, report, _ = started(tmp_path / "a.ckpt", {"name": "sentence_pair"}, RTE)
    assert "tasks.span.qa_outputs.weight" in report.unused
    assert "tasks.sentence_pair.classifier.weight" in report.newly_initialized


def test_squad_one_to_two_keeps_the_vectors_but_not_the_threshold(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    _, head = write_run(path, {"name": "span", "unanswerable": True}, None)
    content = torch.load(path, weights_only=True)
    content["state_dict"]["tasks.span.null_threshold"] = torch.tensor(-1.5)
    torch.save(content, path)
    module, report, _ = started(path, {"name": "span", "unanswerable": True}, None)
    state = module.state_dict()
    assert torch.equal(state["tasks.span.qa_outputs.weight"], head.qa_outputs.weight)
    assert float(state["tasks.span.null_threshold"]) == 0
    assert "tasks.span.null_threshold" in report.unused


HUGGING_FACE = [
    (BertForSequenceClassification, {"id2label": {0: "no", 1: "yes"}}, ("no", "yes"), None),
    (BertForSequenceClassification, {"num_labels": 3}, ("0", "1", "2"), None),
    (BertForSequenceClassification, {"num_labels": 2}, ("no", "yes"), "unnamed in the source"),
    (BertForSequenceClassification, {"num_labels": 2}, ("0", "1", "2"), "unnamed in the source"),
    (BertForTokenClassification, {"id2label": {0: "a", 1: "b"}}, ("a", "b"), "TokenClassification"),
    (BertForQuestionAnswering, {}, ("a", "b"), "BertForQuestionAnswering"),
]


@pytest.mark.parametrize(("model_class", "config", "names", "reason"), HUGGING_FACE)
def test_a_hugging_face_head_is_taken_over_where_it_fits(
    tmp_path: Path,
    model_class: Any,
    config: dict[str, Any],
    names: tuple[str, ...],
    reason: str | None,
) -> None:
    reference = peer(model_class, **config)
    reference.save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    labels = Labels(names, (1,) * len(names))
    module, report, before = started(tmp_path, {"name": "single_sentence"}, labels)
    if reason is None:
        found = module.state_dict()["tasks.single_sentence.classifier.weight"]
        assert torch.equal(found, reference.classifier.weight)
        assert report.notes == []
    else:
        assert_new(module, report, before, reason)


def test_a_tagger_without_names_of_its_classes_is_loaded(tmp_path: Path) -> None:
    """There is no training data whose tags could be numbers by mistake."""
    reference = peer(BertForTokenClassification, num_labels=3)
    reference.save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    model = load(tmp_path)
    assert {each["tags"][0] for each in model.predict([["w1", "w2"]])} <= {"0", "1", "2"}
    weight = model.tasks["tagging"].state_dict()["classifier.weight"]
    assert torch.equal(weight, reference.classifier.weight)


def test_hugging_face_regression_and_spans_are_taken_over(tmp_path: Path) -> None:
    for model_class, config, head, name in (
        (BertForSequenceClassification, {"num_labels": 1}, {"regression": True}, "sentence_pair"),
        (BertForQuestionAnswering, {}, {}, "span"),
    ):
        folder = tmp_path / name
        peer(model_class, **config).save_pretrained(folder)
        TOKENIZER.save(folder)
        _, report, _ = started(folder, {"name": name, **head}, None)
        assert report.notes == []
        assert any(each.startswith(f"tasks.{name}.") for each in report.loaded)


@pytest.mark.parametrize("causal", [False, True])
def test_a_bilstm_is_new_and_all_else_is_loaded(tmp_path: Path, causal: bool) -> None:
    path = tmp_path / "a.ckpt"
    source, _ = write_run(path, {"name": "sentence_pair"}, MNLI, causal=causal)
    module, report, before = started(
        path, {"name": "sentence_pair"}, MNLI, causal=causal, bilstm_layers=1
    )
    assert len(report.newly_initialized) == 8
    assert all(name.startswith("encoder.bilstm.") for name in report.newly_initialized)
    state = module.state_dict()
    assert all(torch.equal(state[name], before[name]) for name in report.newly_initialized)
    for name, tensor in source.state_dict().items():
        assert torch.equal(state[f"encoder.{name}"], tensor)
    assert report.unused == report.notes == []


def test_a_bilstm_comes_along_from_a_run_that_has_one(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    source, _ = write_run(path, {"name": "sentence_pair"}, MNLI, bilstm_layers=1)
    module, report, _ = started(path, {"name": "sentence_pair"}, RTE, bilstm_layers=1)
    found = module.state_dict()["encoder.bilstm.weight_hh_l0_reverse"]
    assert torch.equal(found, source.bilstm.weight_hh_l0_reverse)
    assert not any("bilstm" in name for name in report.newly_initialized)


def test_a_pooled_hugging_face_head_of_a_decoder_starts_anew(tmp_path: Path) -> None:
    config = {"is_decoder": True, "id2label": {0: "no", 1: "yes"}}
    peer(BertForSequenceClassification, **config).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    labels = Labels(("no", "yes"), (1, 1))
    module, report, before = started(tmp_path, {"name": "single_sentence"}, labels, causal=True)
    assert_new(module, report, before, "first token of a left-to-right encoder")


@pytest.mark.slow
def test_a_manifest_tells_the_weights_that_a_run_began_with(
    tiny_run: Path, tiny_config: Path, bertlab: Command, tmp_path: Path
) -> None:
    def weights_of(name: str, start: Path) -> str:
        code, _, error = bertlab(
            "fit", "--config", tiny_config, "--model.init_from", start, "--trainer.max_steps", 1,
            "--run_dir", tmp_path / name,
        )  # fmt: skip
        assert code == 0, error
        found: str = json.loads((tmp_path / name / "manifest.json").read_text())["init_weights"]
        return found

    first = weights_of("first", tiny_run)
    assert weights_of("again", tiny_run) == first
    assert weights_of("other", tmp_path / "first") != first
    assert "init_weights" not in json.loads((tiny_run / "manifest.json").read_text())
