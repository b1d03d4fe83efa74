"""Classification and regression of single sentences: parity, labels, weights and refusals."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from jsonargparse import ArgumentParser
from transformers import BertForSequenceClassification

from bertlab.api.examples import Labels
from bertlab.errors import ConfigError, DataError
from bertlab.heads.sentences import SingleSentence
from tests.checkpoints.peers import TOKENIZER, padded_inputs
from tests.heads.samples import (
    Pooled,
    assert_equal_gradients,
    batch_of,
    beside_hugging_face,
    built,
    rows_of,
    words,
)

ROWS = rows_of(
    *(
        {"text": words(n, n), "label": label}
        for n, label in [(3, "bad"), (30, "good"), (1, "soso"), (12, "good"), (7, "bad")]
    )
)
SCORES = rows_of(*({"text": words(n, n), "label": n / 4} for n in (3, 30, 1, 12)))


def test_logits_loss_and_gradients_equal_hugging_face(tmp_path):
    head = SingleSentence()
    encoder, reference = beside_hugging_face(
        head, ROWS, BertForSequenceClassification, tmp_path, num_labels=3
    )
    batch = batch_of(head, ROWS)
    expected = reference(**padded_inputs(batch), labels=torch.tensor([0, 1, 2, 1, 0]))
    loss = head.loss(encoder(batch), batch)
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, rtol=1e-5, atol=1e-5)
    assert loss.count == 5
    assert torch.equal(loss.preds, expected.logits.argmax(-1))
    predictions = head.decode(encoder(batch), batch)
    scores = torch.tensor([list(each["scores"].values()) for each in predictions])
    torch.testing.assert_close(scores, expected.logits.softmax(-1), rtol=1e-5, atol=1e-5)
    assert [list(each["scores"]) for each in predictions] == [["bad", "good", "soso"]] * 5
    assert all(max(p["scores"], key=p["scores"].get) == p["label"] for p in predictions)
    expected.loss.backward()
    (loss.sum / loss.count).backward()
    assert_equal_gradients(encoder, head, reference)


def test_regression_equals_hugging_face(tmp_path):
    head = SingleSentence(regression=True)
    encoder, reference = beside_hugging_face(
        head, SCORES, BertForSequenceClassification, tmp_path, num_labels=1
    )
    batch = batch_of(head, SCORES)
    expected = reference(**padded_inputs(batch), labels=torch.tensor([0.75, 7.5, 0.25, 3.0]))
    loss = head.loss(encoder(batch), batch)
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(loss.preds, expected.logits[:, 0], rtol=1e-5, atol=1e-5)
    decoded = [each["score"] for each in head.decode(encoder(batch), batch)]
    assert decoded == pytest.approx(expected.logits[:, 0].tolist(), abs=1e-5)
    expected.loss.backward()
    (loss.sum / loss.count).backward()
    assert_equal_gradients(encoder, head, reference)
    assert head.monitor == ("pearson", "max")
    assert set(head.metrics()) == {"pearson", "spearman"}


def test_loss_is_float32_under_bfloat16(tmp_path):
    head = built(SingleSentence(dropout=0.0), ROWS)
    batch = batch_of(head, ROWS)
    with torch.autocast("cpu", torch.bfloat16):
        loss = head.loss(Pooled(torch.randn(5, 32)), batch)
    assert loss.sum.dtype == torch.float32


@pytest.mark.parametrize("limit", [3, 5, 32, 33])
def test_text_is_cut_at_its_end_and_cut_tokens_are_counted(limit):
    head = built(SingleSentence(), ROWS)
    [features] = head.encode(ROWS[1], TOKENIZER, limit)
    ids = TOKENIZER.encode(ROWS[1].values["text"])[: limit - 2]
    assert features.input_ids == [TOKENIZER.cls_id, *ids, TOKENIZER.sep_id]
    assert features.token_type_ids == [0] * len(features.input_ids)
    assert features.truncated == max(0, 30 - (limit - 2))


def test_new_text_needs_no_label():
    head = built(SingleSentence(), ROWS)
    batch = batch_of(head, rows_of({"text": "w1 w2"}, {"text": "w3"}))
    assert set(batch.fields) == {"row", "sequence"}
    assert len(head.decode(Pooled(torch.randn(2, 32)), batch)) == 2


def test_metrics_follow_the_number_of_labels():
    three = {"accuracy", "matthews", "macro_f1", "predicted_classes", "majority_accuracy"}
    assert set(built(SingleSentence(), ROWS).metrics()) == three
    assert set(built(SingleSentence(), ROWS[:2]).metrics()) == three | {"f1"}
    assert SingleSentence().monitor == ("accuracy", "max")


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(lambda n: np.count_nonzero(n) > 1),
    st.data(),
)
def test_mean_weight_of_the_training_rows_is_one(counts, data):
    names = tuple(f"c{n}" for n in range(len(counts)))
    weight = st.floats(0.01, 100)
    given_weights = data.draw(
        st.one_of(
            st.just("balanced"),
            st.lists(weight, min_size=len(names), max_size=len(names)),
            st.dictionaries(st.sampled_from(names), weight),
        )
    )
    head = built(SingleSentence(class_weights=given_weights), labels=Labels(names, tuple(counts)))
    shares = np.array(counts) / sum(counts)
    weights = head.label_weights.double().numpy()
    assert weights @ shares == pytest.approx(1, abs=1e-5)
    if given_weights == "balanced":
        each = (weights * shares)[shares > 0]
        assert each == pytest.approx(np.full(len(each), each[0]), rel=1e-5)
    else:
        plain = given_weights
        if isinstance(plain, dict):
            plain = [plain.get(name, 1.0) for name in names]
        assert weights / weights[0] == pytest.approx(np.array(plain) / plain[0], rel=1e-4)


def test_weighted_loss():
    head = built(SingleSentence(class_weights={"soso": 3.0}, dropout=0.0), ROWS)
    batch, pooled = batch_of(head, ROWS), torch.randn(5, 32)
    weights = torch.tensor([1.0, 1.0, 3.0]) / (7 / 5)  # rows weigh 1, 1, 3, 1 and 1
    each = F.cross_entropy(head.classifier(pooled), batch.fields["label"], reduction="none")
    expected = (each * weights[batch.fields["label"]]).sum()
    torch.testing.assert_close(head.loss(Pooled(pooled), batch).sum, expected)
    assert "label_weights" not in head.state_dict()


def test_model_without_its_data_has_labels_and_no_counts():
    head = built(SingleSentence(class_weights="balanced"), labels=Labels(("a", "b"), (0, 0)))
    assert head.label_weights.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dropout": 1.5}, "model.head.dropout: found 1.5, expected between 0 and 1"),
        ({"dropout": math.nan}, "model.head.dropout"),
        ({"class_weights": "balance"}, "did you mean 'balanced'"),
        ({"class_weights": "balanced", "regression": True}, "regression has no classes"),
        ({"class_weights": {"goood": 2.0}}, "did you mean 'good'"),
        ({"class_weights": [1.0, 2.0]}, "found 2 weights, expected one for each of the 3 labels"),
        ({"class_weights": [1.0, 0.0, 1.0]}, "found 0.0 for 'good'"),
        ({"class_weights": {"good": math.inf}}, "found inf for 'good'"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        built(SingleSentence(**settings), ROWS)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["yes"] * 4, "found only 'yes', expected two or more"),
        ([], "found none"),
        ([f"{n / 4}" for n in range(21)], "set model.head.regression: true"),
    ],
)
def test_labels_that_are_refused(names, message):
    with pytest.raises(DataError) as error:
        built(SingleSentence(), labels=Labels.of(names))
    assert message in str(error.value)


def test_many_whole_numbers_are_classes():
    head = built(SingleSentence(), labels=Labels.of([str(n) for n in range(30)]))
    assert head.classifier.out_features == 30


def test_a_declared_label_that_training_lacks_is_no_second_label():
    with pytest.raises(DataError, match="only 'no'"):
        built(SingleSentence(), labels=Labels(("no", "yes"), (9, 0)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": "", "label": "good"}, "dev.tsv:7: text: found ''"),
        ({"text": " \t\u200b", "label": "good"}, "dev.tsv:7: text: found"),
        ({"text": None, "label": "good"}, "dev.tsv:7: text: found None, expected a text"),
        ({"label": "good"}, "dev.tsv:7: text: found None"),
        ({"text": "w1", "label": "god"}, "did you mean 'good'"),
        ({"text": "w1", "label": None}, "dev.tsv:7: label: found None"),
        ({"text": "w1", "label": ""}, "dev.tsv:7: label: found ''"),
        ({"text": "w1", "label": math.nan}, "dev.tsv:7: label: found nan"),
    ],
)
def test_rows_that_are_refused(values, message):
    head = built(SingleSentence(), ROWS)
    row = rows_of(values)[0]
    with pytest.raises(DataError) as error:
        head.encode(type(row)(row.values, "dev.tsv:7"), TOKENIZER, 32)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("score", [math.nan, math.inf, "nan", "high", "", None, True, 1e300, [1.0]])
def test_scores_that_are_refused(score):
    head = built(SingleSentence(regression=True), SCORES)
    with pytest.raises(DataError, match=r"train.tsv:2: label: found .*, expected a finite number"):
        head.encode(rows_of({"text": "w1", "label": score})[0], TOKENIZER, 32)


@pytest.mark.parametrize("score", [3, 3.0, "3", " 3.0 "])
def test_scores_may_be_numbers_or_text(score):
    head = built(SingleSentence(regression=True), SCORES)
    [features] = head.encode(rows_of({"text": "w1", "label": score})[0], TOKENIZER, 32)
    assert features.fields == {"label": 3.0}


def test_too_short_a_limit_is_refused():
    with pytest.raises(ConfigError, match="max_seq_length: found 2, expected 3 or more"):
        built(SingleSentence(), ROWS).encode(ROWS[0], TOKENIZER, 2)


def test_degenerate_runs_are_complained_about():
    head = built(SingleSentence(), ROWS)
    one_class = {"predicted_classes": 1.0, "majority_accuracy": 0.6}
    assert "model.optimizer.learning_rate" in (head.warning(one_class) or "")
    assert head.warning({"predicted_classes": 2.0, "majority_accuracy": 0.6}) is None
    assert head.warning({"predicted_classes": 1.0, "majority_accuracy": 1.0}) is None
    scores = built(SingleSentence(regression=True), SCORES)
    assert "seed_everything" in (scores.warning({"pearson": math.nan}) or "")
    assert scores.warning({"pearson": 0.1}) is None


def test_arguments_are_documented_config_keys():
    parser = ArgumentParser()
    parser.add_class_arguments(SingleSentence, "head")
    text = " ".join(parser.format_help().split())
    assert "predict a number and not a class" in text
    for given_weights in ("balanced", [1.0, 2.0], {"a": 2.0}, None):
        parsed = parser.parse_object({"head": {"class_weights": given_weights}})
        assert parsed.head.class_weights == given_weights
