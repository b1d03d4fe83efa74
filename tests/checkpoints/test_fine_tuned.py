"""Fine-tuned models: out to transformers, and back."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    PreTrainedModel,
)

from bertlab.api.batch import PackedBatch
from bertlab.api.examples import Labels
from bertlab.api.task import Head, TaskContext
from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.pretrained import head_settings
from bertlab.checkpoints.pretrained_model import load
from bertlab.checkpoints.restore import read_pretrained
from bertlab.checkpoints.run_checkpoint import RUN_KEY, read_run_checkpoint
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError, DataError
from bertlab.model.build import build_tasks
from bertlab_interop.export import export_model
from bertlab_modern.modern import ModernEncoder
from tests.checkpoints.peers import (
    SIZES,
    TOKENIZER,
    assert_bit_equal,
    batch_of,
    padded_inputs,
    peer,
    randomized,
    unpadded,
)
from tests.conftest import Command

POLARITY = Labels(("bad", "good", "so so"), (5, 9, 2))
TAGS = Labels(("O", "B-PER", "I-PER"), (70, 9, 2))
CLOSE = {"atol": 1e-5, "rtol": 0}


def write_run(
    path: Path,
    head_config: dict[str, Any],
    labels: Labels | None,
    encoder_name: str = "bert",
    **changes: Any,
) -> tuple[Any, Head]:
    """A run's checkpoint as a fit leaves it; its encoder and its head."""
    torch.manual_seed(0)
    arguments = SIZES | changes
    encoder = randomized({"bert": BertEncoder, "modern": ModernEncoder}[encoder_name](**arguments))
    head = build_tasks({"head": head_config})[head_config["name"]]
    assert isinstance(head, Head)
    head.build(TaskContext(encoder, TOKENIZER, labels=labels))
    randomized(head, seed=1)
    sizes = {key: value for key, value in arguments.items() if key != "vocab_size"}
    state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    prefix = f"tasks.{head_config['name']}."
    state |= {prefix + name: tensor for name, tensor in head.state_dict().items()}
    ours = {
        "config": {
            "seed_everything": 1,
            "model": {
                "encoder": {"name": encoder_name, **sizes},
                "head": head_config,
                "optimizer": {"learning_rate": 1e-3},
            },
            "data": {"max_seq_length": 16},
            "trainer": {},
        },
        "tokenizer": TOKENIZER.to_json(),
        "token_counts": None,
        "labels": None if labels is None else labels.to_dict(),
    }
    torch.save({RUN_KEY: ours, "state_dict": state, "global_step": 7}, path)
    return encoder, head


def logits(encoder: BertEncoder, head: Any, batch: PackedBatch) -> Tensor:
    """What the head's one layer says; of every token, or of every sequence."""
    with torch.no_grad():
        output = encoder(batch)
        if hasattr(head, "qa_outputs"):
            return head.qa_outputs(output.tokens)
        return head.classifier(output.pooled if head.uses_pooled else output.tokens)


def loaded(auto_class: Any, folder: Path) -> Any:
    """The model as transformers loads it: nothing new, nothing over, nothing of another shape."""
    model, info = auto_class.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


CASES = [
    ({"name": "single_sentence"}, POLARITY, AutoModelForSequenceClassification),
    ({"name": "sentence_pair"}, POLARITY, AutoModelForSequenceClassification),
    ({"name": "sentence_pair", "regression": True}, None, AutoModelForSequenceClassification),
    ({"name": "tagging"}, TAGS, AutoModelForTokenClassification),
    ({"name": "span"}, None, AutoModelForQuestionAnswering),
    ({"name": "multiple_choice"}, None, AutoModelForMultipleChoice),
]
IDS = ["single", "pair", "regression", "tagging", "span", "choice"]


@pytest.mark.first_fast
@pytest.mark.parametrize(("head_config", "labels", "auto_class"), CASES, ids=IDS)
def test_transformers_gives_equal_logits_and_the_way_back_is_bit_equal(
    tmp_path: Path, head_config: dict[str, Any], labels: Labels | None, auto_class: Any
) -> None:
    encoder, head = write_run(tmp_path / "run.ckpt", head_config, labels)
    export_model(str(tmp_path / "run.ckpt"), tmp_path / "out", overwrite=False)
    model = loaded(auto_class, tmp_path / "out")
    assert type(model).__name__ == head.huggingface

    batch = batch_of([7, 7, 7, 7] if head.huggingface == "BertForMultipleChoice" else [7, 48, 1])
    inputs = padded_inputs(batch)
    if head.huggingface == "BertForMultipleChoice":  # two rows of two choices
        inputs = {name: tensor.view(2, 2, -1) for name, tensor in inputs.items()}
    with torch.no_grad():
        output = model(**inputs)
    if head.huggingface == "BertForQuestionAnswering":
        both = torch.stack([output.start_logits, output.end_logits], -1)
        expected = unpadded(batch, both)
    elif head.huggingface == "BertForTokenClassification":
        expected = unpadded(batch, output.logits)
    else:
        expected = output.logits.reshape(len(batch), -1)
    torch.testing.assert_close(logits(encoder, head, batch), expected, **CLOSE)

    if labels is not None:
        assert list(model.config.id2label.values()) == list(labels.names)
        assert model.config.label2id == {name: n for n, name in enumerate(labels.names)}
    back = read_pretrained(str(tmp_path / "out"))
    assert back.head is not None
    assert back.head.architecture == head.huggingface
    assert_bit_equal(back.head.state, dict(head.named_parameters()))
    assert (back.labels and back.labels.names) == (labels and labels.names)
    kept = {n: t for n, t in encoder.state_dict().items() if n in back.encoder_state}
    assert_bit_equal(back.encoder_state, kept)
    assert len(encoder.state_dict()) - len(kept) == (0 if head.uses_pooled else 2)
    assert read_huggingface(tmp_path / "out").unused == []


@pytest.mark.parametrize("causal", [False, True])
def test_a_tagger_has_equal_logits_in_either_direction(tmp_path: Path, causal: bool) -> None:
    encoder, head = write_run(tmp_path / "run.ckpt", {"name": "tagging"}, TAGS, causal=causal)
    export_model(str(tmp_path / "run.ckpt"), tmp_path / "out", overwrite=False)
    model = loaded(AutoModelForTokenClassification, tmp_path / "out")
    batch = batch_of([7, 48, 1])
    with torch.no_grad():
        expected = unpadded(batch, model(**padded_inputs(batch)).logits)
    torch.testing.assert_close(logits(encoder, head, batch), expected, **CLOSE)


@pytest.mark.parametrize(
    ("head_config", "labels"),
    [({"name": "single_sentence"}, POLARITY), ({"name": "multiple_choice"}, None)],
)
def test_a_pooled_head_on_a_left_to_right_encoder_is_not_written(
    tmp_path: Path, head_config: dict[str, Any], labels: Labels | None
) -> None:
    write_run(tmp_path / "run.ckpt", head_config, labels, causal=True)
    with pytest.raises(CheckpointError, match=r"pools the first token.* would differ"):
        export_model(str(tmp_path / "run.ckpt"), tmp_path / "out", overwrite=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("head", "labels", "texts"),
    [
        ("sentence_pair", POLARITY, "text_a and text_b"),
        ("multiple_choice", None, "context and choices and stem"),
    ],
)
def test_a_head_of_pairs_on_segments_is_not_written_as_a_modernbert(
    tmp_path: Path, head: str, labels: Labels | None, texts: str
) -> None:
    path = tmp_path / "run.ckpt"
    write_run(path, {"name": head}, labels, "modern", type_vocab_size=2)
    with pytest.raises(CheckpointError, match=f"{head}, reads {texts} as two segments"):
        export_model(str(path), tmp_path / "out", overwrite=False)
    assert not (tmp_path / "out").exists()
    write_run(path, {"name": head}, labels, "modern", type_vocab_size=0)
    export_model(str(path), tmp_path / "out", overwrite=False)


@pytest.mark.parametrize(
    ("head_config", "labels", "kind"),
    [
        ({"name": "single_sentence"}, POLARITY, "single_label_classification"),
        ({"name": "single_sentence", "regression": True}, None, "regression"),
    ],
)
def test_transformers_knows_the_kind_of_problem(
    tmp_path: Path, head_config: dict[str, Any], labels: Labels | None, kind: str
) -> None:
    write_run(tmp_path / "run.ckpt", head_config, labels)
    export_model(str(tmp_path / "run.ckpt"), tmp_path / "out", overwrite=False)
    model = loaded(AutoModelForSequenceClassification, tmp_path / "out")
    assert model.config.problem_type == kind
    assert model.config.num_labels == (1 if labels is None else 3)
    truth = torch.tensor([0.5, 2.0]) if labels is None else torch.tensor([0, 2])
    assert model(**padded_inputs(batch_of([5, 9])), labels=truth).loss.isfinite()


@pytest.mark.first_fast
@pytest.mark.parametrize(("head_config", "labels", "auto_class"), [CASES[n] for n in (0, 3, 5)])
@pytest.mark.parametrize(("given", "used"), [(None, 0.1), (0.3, 0.3), (0.0, 0.0)])
def test_the_heads_dropout_goes_along(
    tmp_path: Path,
    head_config: dict[str, Any],
    labels: Labels | None,
    auto_class: Any,
    given: float | None,
    used: float,
) -> None:
    write_run(tmp_path / "run.ckpt", {**head_config, "dropout": given}, labels)
    export_model(str(tmp_path / "run.ckpt"), tmp_path / "out", overwrite=False)
    model = loaded(auto_class, tmp_path / "out")
    assert (model.config.classifier_dropout, model.dropout.p) == (given, used)
    back = read_pretrained(str(tmp_path / "out"))
    assert back.head is not None
    assert back.head.dropout == given


@pytest.mark.parametrize("dropout", ["0.1", True, -0.1, 1.5, [0.1]])
def test_a_dropout_that_cannot_be_is_refused(tmp_path: Path, dropout: object) -> None:
    peer(BertForSequenceClassification).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {"classifier_dropout": dropout}))
    with pytest.raises(CheckpointError, match=r"config\.json: found classifier_dropout .* 0 to 1"):
        read_huggingface(tmp_path)


@pytest.mark.parametrize("threshold", ["0.1", True, -0.1, 1.5])
def test_a_threshold_that_cannot_be_is_refused(tmp_path: Path, threshold: object) -> None:
    kind = "multi_label_classification"
    peer(BertForSequenceClassification, problem_type=kind).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {"threshold": threshold}))
    with pytest.raises(CheckpointError, match=r"config\.json: found threshold .* 0 to 1"):
        read_huggingface(tmp_path)


def test_the_null_threshold_stays_behind_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    write_run(path, {"name": "span", "unanswerable": True}, None)
    content = torch.load(path, weights_only=True)
    content["state_dict"]["tasks.span.null_threshold"] = torch.tensor(-1.5)
    torch.save(content, path)
    report = export_model(str(path), tmp_path / "out", overwrite=False)
    assert "null_threshold -1.5" in "".join(report.notes)
    write_run(path, {"name": "span"}, None)
    answers_always = export_model(str(path), tmp_path / "always", overwrite=False)
    assert not answers_always.notes
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        ours = [name for name in file.keys() if not name.startswith("bert.")]  # noqa: SIM118
    assert ours == ["qa_outputs.bias", "qa_outputs.weight"]


def test_a_handed_over_head_reads_as_many_tokens_as_its_run(
    tmp_path: Path, bertlab: Command
) -> None:
    write_run(tmp_path / "run.ckpt", {"name": "tagging"}, TAGS)  # of data.max_seq_length 16
    export_model(str(tmp_path / "run.ckpt"), tmp_path / "out", overwrite=False)
    text = " ".join(["w1", "w2", "w3"] * 10)
    (expected,) = load(tmp_path / "run.ckpt").predict(text)
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert settings.pop("model_max_length") == 16
    for kept in ({"model_max_length": 48}, {"model_max_length": 16}):
        (tmp_path / "out" / "tokenizer_config.json").write_text(json.dumps(settings | kept))
        model = load(tmp_path / "out")
        assert model.max_seq_length == 16
        (found,) = model.predict(text)
        assert found["tags"] == expected["tags"]
        assert found["scores"] == pytest.approx(expected["scores"], abs=1e-5)
    code, printed, error = bertlab("predict", "--ckpt_path", tmp_path / "out", "--data.text", text)
    assert code == 0, error
    assert json.loads(printed)["scores"] == pytest.approx(expected["scores"], abs=1e-5)


def test_a_folder_with_a_head_is_read_as_its_tokenizer_says(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 20}))
    for model_class, read in ((BertForSequenceClassification, 20), (BertForMaskedLM, 48)):
        peer(model_class).save_pretrained(tmp_path)
        assert load(tmp_path).max_seq_length == read


def test_a_head_that_transformers_lacks_leaves_the_encoder_and_a_note(
    bertlab: Command, tmp_path: Path
) -> None:
    config = {"name": "feature_tagging", "hidden_size": 8}
    write_run(tmp_path / "run.ckpt", config, TAGS)
    code, printed, _ = bertlab("export", tmp_path / "run.ckpt", tmp_path / "out")
    assert code == 0
    assert "BertModel" in printed
    assert "'feature_tagging' is not exported" in printed
    assert read_pretrained(str(tmp_path / "out")).head is None


@pytest.mark.parametrize(
    ("model_class", "config", "names"),
    [
        (BertForSequenceClassification, {"id2label": {0: "no", 1: "yes"}}, ("no", "yes")),
        (BertForSequenceClassification, {"num_labels": 4}, None),
        (BertForTokenClassification, {"id2label": {0: "O", 1: "LABEL_1"}}, ("O", "LABEL_1")),
        (BertForTokenClassification, {"id2label": {0: "x", 1: "x"}}, None),
        (BertForTokenClassification, {"id2label": {0: "LABEL_0", 1: "LABEL_1"}}, None),
        (BertForTokenClassification, {"id2label": {0: "O"}}, ("O",)),
        (BertForSequenceClassification, {"id2label": {0: "number"}}, None),
        (
            BertForSequenceClassification,
            {"id2label": {0: "toxic"}, "problem_type": "multi_label_classification"},
            ("toxic",),
        ),
        *(
            (BertForSequenceClassification, {"id2label": dict(enumerate(names))}, names)
            for names in [("LABEL_1", "LABEL_0"), ("LABEL_1", "LABEL_2")]
        ),
        (BertForQuestionAnswering, {"id2label": {0: "no", 1: "yes"}}, None),
    ],
)
def test_names_of_classes_are_read_where_there_are_any(
    tmp_path: Path, model_class: Any, config: dict[str, Any], names: tuple[str, ...] | None
) -> None:
    reference = peer(model_class, **config)
    reference.save_pretrained(tmp_path)
    found = read_huggingface(tmp_path)
    assert found.head is not None
    own = {n: t for n, t in reference.state_dict().items() if not n.startswith("bert.")}
    assert_bit_equal(found.head.state, own)
    assert (found.head.labels and found.head.labels.names) == names


def test_a_hugging_face_model_is_exported_as_it_is(tmp_path: Path) -> None:
    model = peer(BertForTokenClassification, num_labels=5, classifier_dropout=0.25)
    model.save_pretrained(tmp_path / "in")
    TOKENIZER.save(tmp_path / "in")
    export_model(str(tmp_path / "in"), tmp_path / "out", overwrite=False)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("in", "out"))
    assert_bit_equal(after, before)
    config = loaded(AutoModelForTokenClassification, tmp_path / "out").config
    assert (config.num_labels, config.classifier_dropout) == (5, 0.25)


def test_several_labels_at_once_are_no_single_ones(tmp_path: Path) -> None:
    kind = "multi_label_classification"
    peer(BertForSequenceClassification, problem_type=kind).save_pretrained(tmp_path / "in")
    TOKENIZER.save(tmp_path / "in")
    found = read_huggingface(tmp_path / "in")
    assert found.head is not None
    assert head_settings(found.head) == {"name": "multi_label"}
    report = export_model(str(tmp_path / "in"), tmp_path / "out", overwrite=False)
    assert report.architecture == "BertForSequenceClassification"
    assert loaded(BertForSequenceClassification, tmp_path / "out").config.problem_type == kind


@pytest.mark.parametrize(
    "id2label", [["no", "yes"], {"0": "no"}, {"1": "no", "2": "yes"}, {"0": "a", "x": "b"}, {}]
)
def test_labels_that_do_not_fit_the_tensors_are_refused(tmp_path: Path, id2label: object) -> None:
    peer(BertForSequenceClassification).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {"id2label": id2label}))
    with pytest.raises(CheckpointError, match=r"config\.json") as error:
        read_huggingface(tmp_path)
    assert "id2label" in str(error.value) or "classifier.weight: tensor (2, 32)" in str(error.value)


@pytest.mark.parametrize(("rows", "refused"), [(1, False), (2, True), (3, True)])
def test_a_regression_of_several_numbers_is_refused(
    tmp_path: Path, rows: int, refused: bool
) -> None:
    kind = {"problem_type": "regression", "num_labels": rows}
    peer(BertForSequenceClassification, **kind).save_pretrained(tmp_path)
    if not refused:
        found = read_huggingface(tmp_path).head
        assert found is not None
        assert head_settings(found)["regression"] is True
        return
    with pytest.raises(CheckpointError, match=rf"regression of {rows} numbers, expected one"):
        read_huggingface(tmp_path)


def test_a_damaged_head_is_listed(tmp_path: Path) -> None:
    peer(BertForQuestionAnswering).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["qa_outputs.weight"] = tensors["qa_outputs.weight"][:, :16].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"qa_outputs\.weight: tensor \(2, 16\), .*\(2, 32\)"):
        read_huggingface(tmp_path)


@pytest.mark.parametrize(
    "labels", [["a"], {"names": ["a"]}, {"names": ["a"], "counts": []}, {"names": 1, "counts": 1}]
)
def test_damaged_labels_of_a_run_are_refused(tmp_path: Path, labels: object) -> None:
    path = tmp_path / "run.ckpt"
    write_run(path, {"name": "single_sentence"}, POLARITY)
    assert read_run_checkpoint(path).labels == POLARITY
    content = torch.load(path, weights_only=True)
    content[RUN_KEY]["labels"] = labels
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"run\.ckpt: .*labels"):
        read_run_checkpoint(path)
    del content[RUN_KEY]["labels"]  # as checkpoints of pre-training were
    torch.save(content, path)
    assert read_run_checkpoint(path).labels is None


LABELLED = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}}
OTHER_HEADS = [
    (BertForSequenceClassification, "tagging", "tasks.tagging.classifier.weight"),
    (BertForTokenClassification, "single_sentence", "encoder.pooler.weight"),
    (BertForSequenceClassification, "multi_label", "tasks.multi_label.classifier.weight"),
]


@pytest.mark.parametrize(("model_class", "head", "layer"), OTHER_HEADS)
def test_layers_that_nobody_trained_predict_nothing(
    tmp_path: Path, bertlab: Command, model_class: Any, head: str, layer: str
) -> None:
    peer(model_class, **LABELLED).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    message = rf"has no weights for {layer}.*--model\.init_from.*the head {head} starts anew"
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path, head=head)
    text = ("--model.head", head, "--data.text", "w1 w2")
    code, printed, error = bertlab("predict", "--ckpt_path", tmp_path, *text)
    assert (code, printed) == (2, "")
    assert re.search(message, error), error


def test_heads_with_the_same_layers_predict_by_either_name(tmp_path: Path) -> None:
    peer(BertForSequenceClassification, **LABELLED).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    (single,) = load(tmp_path).predict("w1 w2")
    (pair,) = load(tmp_path, head="sentence_pair").predict([("w1 w2", "w3")])
    assert {single["label"], pair["label"]} <= {*LABELLED["id2label"].values()}


@pytest.mark.parametrize("names", [{0: "O"}, {0: "LABEL_0"}])
def test_a_folder_of_one_tag_predicts_it(tmp_path: Path, names: dict[int, str]) -> None:
    peer(BertForTokenClassification, id2label=names).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    (found,) = load(tmp_path).predict("w1 w2")
    assert found["tags"] == ["O" if names[0] == "O" else "0"] * 2


@pytest.mark.parametrize("head", ["multi_label", "tagging", "feature_tagging"])
def test_a_regression_is_read_by_heads_of_numbers(tmp_path: Path, head: str) -> None:
    peer(BertForSequenceClassification, num_labels=1).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    for kind in ("single_sentence", "long_text"):
        assert "score" in load(tmp_path, head=kind).predict("w1")[0]
    with pytest.raises(
        CheckpointError, match=f"head: found {head}, expected one of numbers: single"
    ):
        load(tmp_path, head=head)


@pytest.mark.parametrize("given", [["w1", 3], ["w1", None], {"words": 3}, {"words": ["w1", 2.5]}])
def test_a_word_that_is_no_text_is_told(tmp_path: Path, given: Any) -> None:
    write_run(tmp_path / "run.ckpt", {"name": "tagging"}, TAGS)
    model = load(tmp_path / "run.ckpt")
    with pytest.raises(DataError, match=r"input 1: words: found .*, expected a text"):
        model.predict([["w1", "w2"], given])


@pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
def test_a_tagger_has_no_problem_type(tmp_path: Path, kind: str) -> None:
    peer(BertForTokenClassification, problem_type=kind, **LABELLED).save_pretrained(tmp_path)
    found = read_huggingface(tmp_path).head
    assert found is not None
    assert head_settings(found) == {"name": "tagging"}


def test_a_folder_for_questions_is_whole_without_a_threshold(tmp_path: Path) -> None:
    peer(BertForQuestionAnswering).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    (found,) = load(tmp_path).predict({"question": "w1", "context": "w2 w3"})
    assert found["answer"]


def test_a_classifier_that_is_not_read_is_named(tmp_path: Path, bertlab: Command) -> None:
    peer(BertForSequenceClassification).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(content | {"architectures": None}))
    code, _, error = bertlab("predict", "--ckpt_path", tmp_path, "--data.text", "w1")
    assert code == 2
    assert "what is of no head here (classifier.bias, classifier.weight), nothing to" in error


@pytest.mark.parametrize("kind", [BertModel, BertForMaskedLM])
def test_what_has_no_head_has_none_to_name(tmp_path: Path, kind: type[PreTrainedModel]) -> None:
    peer(kind).save_pretrained(tmp_path)
    TOKENIZER.save(tmp_path)
    assert not any(isinstance(task, Head) for task in load(tmp_path).tasks.values())
    with pytest.raises(CheckpointError, match="has no trained head, found head='single_sentence'"):
        load(tmp_path, head="single_sentence")
