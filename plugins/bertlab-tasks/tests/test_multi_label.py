"""Several labels for a text: parity, cells of tables, metrics, hand-over and refusals."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import accuracy_score, f1_score
from transformers import BertForSequenceClassification

from bertlab.errors import ConfigError, DataError
from bertlab_studies.report.prediction_scores import candidate_scores
from bertlab_tasks.multi_label import MultiLabel
from tests.checkpoints.peers import padded_inputs
from tests.conftest import Command
from tests.heads.samples import (
    assert_equal_gradients,
    batch_of,
    beside_hugging_face,
    built,
    rows_of,
    words,
)

TRUTH = [["a"], [], ["c", "a"], ["b"], ["b", "c"]]
ROWS = rows_of(
    *({"text": words(n, n), "labels": t} for n, t in zip((3, 30, 1, 12, 7), TRUTH, strict=True))
)
ONE_HOT = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 1]], dtype=torch.float32)


def test_logits_loss_and_gradients_equal_hugging_face(tmp_path: Path) -> None:
    head = MultiLabel()
    encoder, reference = beside_hugging_face(
        head, ROWS, BertForSequenceClassification, tmp_path, num_labels=3,
        problem_type="multi_label_classification",
    )  # fmt: skip
    batch = batch_of(head, ROWS)
    expected = reference(**padded_inputs(batch), labels=ONE_HOT)
    loss = head.loss(encoder(batch), batch)
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, rtol=1e-5, atol=1e-5)
    assert torch.equal(loss.target, ONE_HOT.long())
    assert torch.equal(loss.preds, (expected.logits > 0).long())
    predictions = head.decode(encoder(batch), batch)
    scores = torch.tensor([list(each["scores"].values()) for each in predictions])
    torch.testing.assert_close(scores, expected.logits.sigmoid(), rtol=1e-5, atol=1e-5)
    for each in predictions:
        assert each["labels"] == [name for name, score in each["scores"].items() if score >= 0.5]
    expected.loss.backward()
    (loss.sum / loss.count).backward()
    assert_equal_gradients(encoder, head, reference)


def test_a_batch_whose_rows_have_no_labels() -> None:
    head = built(MultiLabel(), ROWS)
    batch = batch_of(head, [ROWS[1], ROWS[1]])
    assert batch.fields["labels_cu_seqlens"].tolist() == [0, 0, 0]
    logits = torch.zeros(2, 3)
    assert not head._truth(batch, logits).any()


def test_metrics_equal_scikit_learn_and_so_do_scores_of_rows() -> None:
    generator = np.random.default_rng(3)
    truth, predicted = generator.random((2, 200, 3)) < 0.4
    truth[:, 2] = predicted[:, 2] = False  # a label that no row has
    head = built(MultiLabel(), ROWS)
    names = ["a", "b", "c"]
    lines = [
        {
            "labels": [name for name, there in zip(names, found, strict=True) if there],
            "scores": dict.fromkeys(names, 0.5),
            "gold": {"labels": [name for name, there in zip(names, true, strict=True) if there]},
        }
        for found, true in zip(predicted, truth, strict=True)
    ]
    expected = {
        "micro_f1": f1_score(truth, predicted, average="micro", zero_division=0),
        "macro_f1": f1_score(truth, predicted, average="macro", zero_division=0),
        "exact_match": accuracy_score(truth, predicted),
    }
    metrics = head.metrics()
    for metric in metrics.values():
        metric.update(torch.tensor(predicted).long(), torch.tensor(truth).long())
    _, of_set = np.unique(truth, axis=0, return_counts=True)
    every = np.ones_like(truth)
    constant = [np.array(each) for each in np.ndindex(2, 2, 2)]
    scores = [
        f1_score(truth, np.tile(each, (200, 1)), average="micro", zero_division=0)
        for each in constant
    ]
    baselines = {
        "majority_exact_match": of_set.max() / 200,
        "majority_micro_f1": max(scores),
        "majority_macro_f1": f1_score(truth, every, average="macro", zero_division=0),
        "predicted_sets": len(np.unique(predicted, axis=0)),
    }
    for name, value in baselines.items():
        assert float(metrics.pop(name).compute()) == pytest.approx(value, abs=1e-6)
    assert metrics.keys() == expected.keys()
    for name, metric in metrics.items():
        assert float(metric.compute()) == pytest.approx(expected[name], abs=1e-6)
        (scores,) = candidate_scores(lines, f"multi_label/{name}")
        assert scores is not None
        assert scores.mean() == pytest.approx(expected[name], abs=1e-9)


def test_the_threshold() -> None:
    generous, strict = (built(MultiLabel(threshold=each), ROWS) for each in (0.1, 0.9))
    logits = torch.tensor([[-1.0, 0.0, 1.0]])  # 0.27, 0.5, 0.73
    assert generous._holds(logits).tolist() == [[1, 1, 1]]
    assert strict._holds(logits).tolist() == [[0, 0, 0]]
    with pytest.raises(ConfigError, match=r"model\.head\.threshold"):
        MultiLabel(threshold=1.0)


def test_refusals() -> None:
    with pytest.raises(DataError, match="found none in any row"):
        built(MultiLabel(), [ROWS[1]])
    head = built(MultiLabel(), ROWS)
    with pytest.raises(DataError, match=r"labels: found 'd', which is none of the 3 labels"):
        batch_of(head, rows_of({"text": "a word", "labels": ["d"]}))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows in several forms."""
    folder = tmp_path_factory.mktemp("labelled")
    texts = [f"{' '.join(['red'] * (n % 3))} text {n}" for n in range(30)]
    labels = [(["a"], [], ["b", "a"])[n % 3] for n in range(30)]
    for mark in ("|", ";", ","):
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["text", "labels"])
        writer.writerows(zip(texts, [mark.join(each) for each in labels], strict=True))
        name = {"|": "bar", ";": "semicolon", ",": "comma"}[mark]
        (folder / f"{name}.csv").write_text(file.getvalue())
    rows = [{"text": t, "labels": each} for t, each in zip(texts, labels, strict=True)]
    (folder / "lists.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def fit(bertlab: Command, tiny_run: Path, run: Path, source: Path, *more: str) -> dict[str, float]:
    code, _, error = bertlab(
        "fit", "--model.head", "multi_label", "--model.init_from", tiny_run,
        "--data.source", source, "--data.validation_fraction", "0.3", "--seed_everything", "1",
        "--data.max_seq_length", "32", "--data.batch_size", "8", "--trainer.max_steps", "4",
        "--model.optimizer.learning_rate", "1e-3",
        "--trainer.accelerator", "cpu", "--run_dir", run, *more,
    )  # fmt: skip
    assert code == 0, error
    found: dict[str, float] = json.loads((run / "results.json").read_text())
    return found


@pytest.mark.nightly
def test_every_form_of_file_gives_the_same_run(
    data: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    results = [
        fit(bertlab, tiny_run, tmp_path / name, data / name)
        for name in ("bar.csv", "semicolon.csv", "comma.csv", "lists.jsonl")
    ]
    assert all(each == results[0] for each in results)
    assert "multi_label/micro_f1" in results[0]


@pytest.mark.slow
def test_a_run_is_handed_over_with_its_problem_type(
    data: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    fit(bertlab, tiny_run, tmp_path / "run", data / "bar.csv", "--model.head.threshold", "0.05")
    assert bertlab("export", tmp_path / "run", tmp_path / "hf")[0] == 0
    assert json.loads((tmp_path / "hf/config.json").read_text())["threshold"] == 0.05
    text = "red red text 5"
    found = []
    for source in ("run", "hf"):
        code, output, error = bertlab("predict", "--ckpt_path", tmp_path / source, "--text", text)
        assert code == 0, error
        found.append(json.loads(output))
    assert found[0]["labels"] == found[1]["labels"]
    assert found[0]["scores"] == pytest.approx(found[1]["scores"], abs=1e-6)
    pipeline = transformers.pipeline(
        "text-classification", str(tmp_path / "hf"), device="cpu", top_k=None
    )
    theirs = {each["label"]: each["score"] for each in pipeline([text])[0]}
    assert theirs == pytest.approx(found[0]["scores"], abs=1e-5)


@pytest.mark.slow
def test_a_head_of_single_labels_starts_anew(
    data: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    fit(bertlab, tiny_run, tmp_path / "run", data / "bar.csv")
    assert bertlab("export", tmp_path / "run", tmp_path / "hf")[0] == 0
    rows = "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(20))
    (tmp_path / "single.csv").write_text(f"text,label\n{rows}")
    code, output, error = bertlab(
        "fit", "--model.head", "single_sentence", "--model.init_from", tmp_path / "hf",
        "--data.source", tmp_path / "single.csv", "--data.validation_fraction", "0.3",
        "--data.max_seq_length", "32", "--data.batch_size", "8", "--trainer.max_steps", "1",
        "--trainer.accelerator", "cpu", "--run_dir", tmp_path / "single",
    )  # fmt: skip
    assert code == 0, error
    assert "starts anew: the source's is for multi_label_classification" in output
