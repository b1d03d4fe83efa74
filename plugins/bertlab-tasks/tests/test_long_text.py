"""Texts beyond a model's length: windows as by hand, cut texts counted."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertlab.api import ConfigError, Example, Labels, TaskContext
from bertlab.checkpoints.pretrained_model import load
from bertlab.heads.sentences import SingleSentence
from bertlab.model.build import build_encoder
from bertlab.testing import conformance
from bertlab.training.run import Run, fit
from bertlab_tasks.long_text import LongText, pool_windows, text_windows
from tests.checkpoints.peers import SIZES, TOKENIZER
from tests.conftest import Command

test_contract = conformance("long_text")
IN_NO_RUN = dict.fromkeys(
    ("works_in_a_run", "run_goes_on_without_its_config"), "as means of windows in a run"
)
test_contract_of_max = conformance("long_text", arguments={"window_pooling": "max"}, skip=IN_NO_RUN)
test_contract_of_numbers = conformance("long_text", arguments={"regression": True}, skip=IN_NO_RUN)

LABELS = Labels(("neg", "pos"), (1, 1))


def built(**arguments: Any) -> LongText:
    head = LongText(**arguments)
    sizes = {key: value for key, value in SIZES.items() if key != "vocab_size"}
    encoder = build_encoder({"name": "bert", **sizes}, SIZES["vocab_size"])
    head.build(TaskContext(encoder, TOKENIZER, labels=LABELS))
    return head


def text_of(words: int) -> Example:
    return Example({"text": " ".join(f"w{n % 92}" for n in range(words)), "label": "pos"}, "row 1")


def test_windows_overlap_and_cover_the_text() -> None:
    assert text_windows(10, 4, 3) == [(0, 4), (3, 7), (6, 10)]
    assert text_windows(4, 4, None) == [(0, 4)]
    features = built().encode(text_of(25), TOKENIZER, 12)
    # a room of 10, a stride of 5
    assert [len(each.input_ids) for each in features] == [12, 12, 12, 12]
    assert [each.fields["window"] for each in features] == [0, 1, 2, 3]
    assert [each.count for each in features] == [1, 0, 0, 0]
    starts = [each.input_ids[1] for each in features]
    assert [b - a for a, b in pairwise(starts)] == [5, 5, 5]


def test_a_short_text_is_that_of_single_sentence() -> None:
    head, other = built(), SingleSentence()
    other.labels = LABELS
    (ours,) = head.encode(text_of(6), TOKENIZER, 12)
    (theirs,) = other.encode(text_of(6), TOKENIZER, 12)
    assert ours.input_ids == theirs.input_ids
    assert (ours.truncated, ours.fields["label"]) == (0, theirs.fields["label"])
    assert not head.notes


def test_what_is_cut_is_counted() -> None:
    first = built(window_pooling="first")
    (only,) = first.encode(text_of(25), TOKENIZER, 12)
    assert only.truncated == 15
    assert first.notes == {"texts cut behind their last window": 1}
    some = built(max_windows=2)
    assert [each.truncated for each in some.encode(text_of(25), TOKENIZER, 12)] == [10, 0]
    assert some.notes == {
        "texts in several windows": 1,
        "texts cut behind their last window": 1,
    }


def test_scores_are_pooled_text_by_text() -> None:
    scores = torch.tensor([[1.0, 5.0], [3.0, 1.0], [2.0, 2.0]], requires_grad=True)
    first = torch.tensor([True, False, True])
    assert pool_windows(scores, first, "mean").tolist() == [[2, 3], [2, 2]]
    assert pool_windows(scores, first, "max").tolist() == [[3, 5], [2, 2]]
    assert pool_windows(scores, first, "first").tolist() == [[1, 5], [2, 2]]
    pool_windows(scores, first, "max")[0].sum().backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window_pooling": "sum"}, "window_pooling: found 'sum', expected one of mean, max"),
        ({"window_stride": 0}, "window_stride: found 0"),
        ({"max_windows": 0}, "max_windows: found 0"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LongText(**arguments)


def test_a_stride_that_loses_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match="window_stride: found 11, expected 1 to 10"):
        built(window_stride=11).encode(text_of(25), TOKENIZER, 12)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of which half are longer than a window; the label stands at the end."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [
        {"text": "the value of a list " * (n % 9) + "is " + "ab"[n % 2], "label": "ab"[n % 2]}
        for n in range(60)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


CONFIG: dict[str, Any] = {
    "data": {"max_seq_length": 16, "batch_size": 8, "validation_fraction": 0.2}
}


def trained(tiny_run: Path, rows: Path, folder: Path, **head: Any) -> Run:
    return fit(
        CONFIG,
        {
            "model.init_from": str(tiny_run),
            "model.head": {"name": "long_text", **head},
            "data.source": str(rows),
            "trainer.max_steps": 6,
            "run_dir": str(folder),
        },
    )


@pytest.mark.first_slow
@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_predictions_are_windows_by_hand_through_transformers(
    tiny_run: Path, rows: Path, tmp_path: Path, pooling: str
) -> None:
    run = trained(tiny_run, rows, tmp_path / "run", window_pooling=pooling)
    report = run.export(tmp_path / "hf")
    assert any("scores are those of one window" in note for note in report.notes)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    texts = ["a list is a", "the value of a list " * 7 + "is b"]
    for text, found in zip(texts, run.predict(texts), strict=True):
        windows = tokenizer(
            text,
            max_length=16,
            truncation=True,
            stride=7,  # tokens that two windows share: 14 less our stride
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        windows.pop("overflow_to_sample_mapping")
        with torch.no_grad():
            logits = model(**windows).logits
        pooled = {"mean": logits.mean(0), "max": logits.amax(0), "first": logits[0]}[pooling]
        theirs = pooled.softmax(-1)
        for number, name in model.config.id2label.items():
            assert found["scores"][name] == pytest.approx(theirs[number].item(), abs=1e-5)


@pytest.mark.slow
def test_cut_texts_are_said_in_fit_and_predict(
    tiny_run: Path, rows: Path, tmp_path: Path, bertlab: Command
) -> None:
    given = ["--model.init_from", tiny_run, "--data.source", rows, "--trainer.max_steps", 2]
    given += ["--data.max_seq_length", 16, "--run_dir", tmp_path / "run"]
    head = ["--model.head", "long_text", "--model.head.max_windows", 2]
    code, printed, error = bertlab("fit", *given, *head)
    assert code == 0, error
    assert "texts cut behind their last window" in printed
    assert "texts in several windows" in printed
    code, _, error = bertlab("predict", "--ckpt_path", tmp_path / "run", "--input", rows)
    assert code == 0
    assert "32 of 60 rows are longer" in error


@pytest.mark.slow
def test_a_window_longer_than_the_model_is_refused(
    tiny_run: Path, rows: Path, tmp_path: Path, bertlab: Command
) -> None:
    code, _, error = bertlab(
        *("fit", "--model.init_from", tiny_run, "--data.source", rows, "--model.head", "long_text"),
        *("--data.max_seq_length", 4096, "--run_dir", tmp_path / "run"),
    )
    assert code == 2
    assert "max_seq_length" in error
    assert load(tiny_run).max_seq_length < 4096
