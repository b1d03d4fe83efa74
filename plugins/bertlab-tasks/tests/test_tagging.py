"""Tagging against Hugging Face, and windows, schemes and scores by their definitions."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertForTokenClassification

from bertlab.api.examples import Example, Labels
from bertlab.data.examples.encoded import encode_examples
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import ConfigError, DataError
from bertlab_tasks.tagging import Tagging, word_windows
from tests.checkpoints.peers import TOKENIZER
from tests.heads.samples import batch_of, beside_hugging_face, built_on_encoder, rows_of

TRAIN = rows_of(
    {"words": ["w1", "w2.w3.w4", "w5", "w6-w7"], "tags": ["B-PER", "I-PER", "O", "B-LOC"]},
    {"words": ["w8.w9"], "tags": ["O"]},
    {"words": ["w10", "w11", "w12", "w13", "w14"], "tags": ["O", "B-LOC", "I-LOC", "O", "B-PER"]},
)


def built(rows=TRAIN, **arguments) -> tuple[Tagging, BertEncoder]:
    head, encoder = built_on_encoder(Tagging(**arguments), rows)
    return head.eval(), encoder.eval()


def predictions(head, encoder, rows, max_seq_length=48):
    batch = batch_of(head, rows, max_seq_length)
    parts = [[] for _ in rows]
    for row, part in zip(
        batch.fields["row"].tolist(), head.decode(encoder(batch), batch), strict=True
    ):
        parts[row].append(part)
    return [head.merge(row, each) for row, each in zip(rows, parts, strict=True)]


def test_logits_loss_and_gradients_equal_hugging_face(tmp_path, hugging_face_tokenizer):
    head = Tagging()
    encoder, reference = beside_hugging_face(
        head, TRAIN, BertForTokenClassification, tmp_path, num_labels=5
    )
    inputs = hugging_face_tokenizer(
        [row.values["words"] for row in TRAIN],
        is_split_into_words=True,
        padding=True,
        return_tensors="pt",
    )
    labels = torch.full_like(inputs["input_ids"], -100)
    for number, row in enumerate(TRAIN):
        before = None
        for place, word in enumerate(inputs.word_ids(number)):
            if word is not None and word != before:
                labels[number, place] = head.labels.names.index(row.values["tags"][word])
            before = word
    expected = reference(**inputs, labels=labels)
    batch = batch_of(head, TRAIN)
    assert torch.equal(batch.input_ids, inputs["input_ids"][inputs["attention_mask"].bool()])
    output = encoder(batch)
    loss = head.loss(output, batch)
    torch.testing.assert_close(
        head.logits(output, batch), expected.logits[labels != -100], rtol=0, atol=1e-5
    )
    torch.testing.assert_close(loss.sum / loss.count, expected.loss, rtol=0, atol=1e-5)
    assert loss.count == batch.counts["head"] == 10
    assert torch.equal(loss.target, labels[labels != -100])
    expected.loss.backward()
    (loss.sum / loss.count).backward()
    layer = reference.bert.encoder.layer[1]
    for ours, theirs in [
        (head.classifier.weight, reference.classifier.weight),
        (head.classifier.bias, reference.classifier.bias),
        (encoder.token_embedding.weight, reference.bert.embeddings.word_embeddings.weight),
        (encoder.layers[1].output.weight, layer.output.dense.weight),
    ]:
        assert theirs.grad.abs().max() > 0
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-5)


def context_in(window, word, lengths):
    """Pieces to the left and right of a word in a window, counted one by one."""
    shown = [number for number in window.word.tolist() if number >= 0]
    return min(
        sum(lengths[other] for other in shown if other < word),
        sum(lengths[other] for other in shown if other > word),
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=30), st.integers(3, 16), st.integers(1, 14)
)
def test_each_word_is_predicted_once_where_it_has_most_context(pieces, longest, stride):
    words = [" ".join(f"w{(3 * n + k) % 92}" for k in range(size)) for n, size in enumerate(pieces)]
    room = longest - 2
    stride = min(stride, room)
    windows = word_windows(words, TOKENIZER, longest, stride)
    predicted = np.concatenate([window.word[window.is_predicted] for window in windows])
    assert sorted(predicted.tolist()) == list(range(len(words)))
    lengths = [min(max(1, size), room) for size in pieces]
    for window in windows:
        assert len(window.input_ids) <= longest
        assert window.input_ids[0] == TOKENIZER.cls_id
        assert window.input_ids[-1] == TOKENIZER.sep_id
        for place, word in enumerate(window.word.tolist()):
            if word < 0:
                continue
            ids = TOKENIZER.encode(words[word])[:room] or [TOKENIZER.unk_id]
            assert window.input_ids[place : place + lengths[word]] == ids
        for word in window.word[window.is_predicted].tolist():
            here = context_in(window, word, lengths)
            others = [other for other in windows if word in other.word]
            assert here == max(context_in(other, word, lengths) for other in others)
    lost = sum(max(0, size - room) for size in pieces)
    assert sum(window.truncated for window in windows) == lost


def test_a_sentence_that_fits_is_one_window_of_all_its_words():
    (window,) = word_windows(["w1.w2", "w3"], TOKENIZER, 6)
    assert window.word.tolist() == [-1, 0, -1, -1, 1, -1]
    assert window.is_predicted.tolist() == [False, True, False, False, True, False]


def test_default_stride_is_half_a_window():
    windows = word_windows([f"w{n}" for n in range(20)], TOKENIZER, 10)
    assert [window.word[1] for window in windows] == [0, 4, 8, 12]
    assert [window.word[window.is_predicted].tolist() for window in windows] == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9],
        [10, 11, 12, 13],
        [14, 15, 16, 17, 18, 19],
    ]


@pytest.mark.parametrize("stride", [9, 100])
def test_a_stride_that_would_skip_words_is_refused(stride):
    head, _ = built(window_stride=stride)
    with pytest.raises(ConfigError, match=rf"window_stride: found {stride}, expected 1 to 8"):
        head.encode(TRAIN[0], TOKENIZER, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"window_stride": 0}, "window_stride: found 0"), ({"dropout": 1.5}, "dropout: found 1.5")],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Tagging(**arguments)


def test_odd_words_are_kept_and_counted():
    head, encoder = built()
    words = ["\x01", "[MASK]", "w1 " * 50, ""]
    row = Example({"words": words, "tags": ["O", "B-PER", "O", "O"]}, "x:1")
    encoded = encode_examples(head, [row], TOKENIZER, 12)
    assert TOKENIZER.mask_id not in encoded.input_ids
    assert encoded.truncated.sum() == 40
    assert encoded.counts.sum() == 4
    assert encoded.notes == {
        "sentences in several windows": 1,
        "windows with a word that is longer than a window, its end cut off": 1,
    }
    (prediction,) = predictions(head, encoder, [row], 12)
    assert len(prediction["tags"]) == 4
    assert all(prediction["tags"])


def test_rows_without_words_are_counted():
    head, _ = built()
    assert head.encode(Example({"words": []}, "x:1"), TOKENIZER, 12) == []
    assert head.notes == {"rows without words left out": 1}


def test_long_sentences_train_every_word_once_and_predict_in_order():
    head, encoder = built()
    generator = np.random.default_rng(0)
    words = [f"w{n}" for n in generator.integers(0, 92, 60)]
    tags = [str(tag) for tag in generator.choice(["O", "B-PER", "B-LOC"], 60)]
    row = Example({"words": words, "tags": tags}, "x:1")
    batch = batch_of(head, [row], 16)
    loss = head.loss(encoder(batch), batch)
    assert loss.count == batch.counts["head"] == 60
    names = np.array(head.labels.names)
    order = np.argsort(batch.fields["word"][batch.fields["is_predicted"]].numpy())
    assert names[loss.target.numpy()][order].tolist() == tags
    (prediction,) = predictions(head, encoder, [row], 16)
    assert prediction["tags"] == names[loss.preds.numpy()][order].tolist()


def test_prediction_needs_no_tags_and_is_json():
    head, encoder = built()
    with_tags = predictions(head, encoder, TRAIN)
    without = [Example({"words": row.values["words"]}, row.where) for row in TRAIN]
    found = predictions(head, encoder, without)
    assert found == with_tags
    assert json.loads(json.dumps(found)) == found
    assert all(0 < score <= 1 for each in found for score in each["scores"])


def test_entities_of_a_prediction_name_their_words():
    head, _ = built()
    row = Example({"words": ["Ann", "Lee", "saw", "Rome", "Oslo"]}, "x:1")
    parts = [
        {"words": [3, 4], "tags": ["B-LOC", "B-LOC"], "scores": [0.5, 0.5]},
        {"words": [0, 1, 2], "tags": ["I-PER", "I-PER", "O"], "scores": [0.9, 0.8, 0.7]},
    ]
    assert head.merge(row, parts) == {
        "tags": ["I-PER", "I-PER", "O", "B-LOC", "B-LOC"],
        "scores": [0.9, 0.8, 0.7, 0.5, 0.5],
        "entities": [
            {"type": "PER", "start_word": 0, "end_word": 2, "text": "Ann Lee"},
            {"type": "LOC", "start_word": 3, "end_word": 4, "text": "Rome"},
            {"type": "LOC", "start_word": 4, "end_word": 5, "text": "Oslo"},
        ],
    }


IOB1 = rows_of(
    {"words": ["a", "b", "c", "d"], "tags": ["I-PER", "I-PER", "B-PER", "O"]},
    {"words": ["a", "b"], "tags": ["O", "I-LOC"]},
)


@pytest.mark.parametrize("scheme", ["auto", "iob1"])
def test_iob1_is_trained_and_scored_as_bio(scheme):
    head, encoder = built(IOB1, scheme=scheme)
    assert head.labels == Labels(("B-LOC", "B-PER", "I-PER", "O"), (1, 2, 1, 2))
    batch = batch_of(head, IOB1)
    names = [head.labels.names[number] for number in head.loss(encoder(batch), batch).target]
    assert names == ["B-PER", "I-PER", "B-PER", "O", "O", "B-LOC"]
    assert head.notes == {"tags I- that begin an entity (IOB1), read as B-": 2}
    right = [{"tags": names[:4]}, {"tags": names[4:]}]
    assert head.score(IOB1, right) == {
        "precision": 1,
        "recall": 1,
        "f1": 1,
        "f1/LOC": 1,
        "f1/PER": 1,
        "accuracy": 1,
        "majority_accuracy": 2 / 6,
    }
    assert list(head.score(IOB1, right)) == head.score_names()
    as_iob1 = [{"tags": row.values["tags"]} for row in IOB1]
    scores = head.score(IOB1, as_iob1)
    assert (scores["f1"], scores["accuracy"]) == (1, 4 / 6)


def test_declared_io_tags_get_those_that_begin_an_entity():
    rows = rows_of({"words": ["w1", "w2"], "tags": ["I-LOC", "O"]})
    head = Tagging()
    labels = Labels.of(head.labels_of(rows[0]), ("O", "I-LOC"))
    assert labels == Labels(("O", "I-LOC", "B-LOC"), (1, 0, 1))
    head, encoder = built_on_encoder(head, rows, labels)
    assert head.loss(encoder(batch_of(head, rows)), batch_of(head, rows)).target.tolist() == [2, 0]


def test_bio_is_taken_as_it_is():
    head, _ = built(IOB1, scheme="bio")
    assert head.labels.names == ("B-PER", "I-LOC", "I-PER", "O")
    assert [list(head.labels_of(row)) for row in IOB1] == [row.values["tags"] for row in IOB1]


def test_parts_of_speech_are_scored_by_accuracy():
    rows = rows_of(
        {"words": ["w1", "w2", "w3"], "tags": ["DET", "NOUN", "VERB"]},
        {"words": ["w4"], "tags": ["NOUN"]},
    )
    head, encoder = built(rows)
    assert head.monitor == ("accuracy", "max")
    assert Tagging.monitor == ("f1", "max")
    assert head.score_names() == ["accuracy", "majority_accuracy"]
    guess = [{"tags": ["DET", "NOUN", "NOUN"]}, {"tags": ["NOUN"]}]
    assert head.score(rows, guess) == {"accuracy": 0.75, "majority_accuracy": 0.5}
    assert all("entities" not in each for each in predictions(head, encoder, rows))
    assert head.warning({"accuracy": 0.5, "majority_accuracy": 0.5}) is not None
    assert head.warning({"accuracy": 0.6, "majority_accuracy": 0.5}) is None


def test_a_run_that_finds_nothing_is_told():
    head, _ = built()
    scores = head.score(TRAIN, [{"tags": ["O"] * len(row.values["tags"])} for row in TRAIN])
    assert scores["accuracy"] == scores["majority_accuracy"] == 0.4
    assert scores["f1"] == 0
    assert "no entity" in head.warning(scores)
    assert head.warning({"f1": 0.1, "accuracy": 0.5, "majority_accuracy": 0.5}) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"words": ["a", "b"], "tags": ["O"]}, r"dev:7: tags: found 1 for 2 words"),
        ({"words": [], "tags": ["O"]}, r"dev:7: tags: found 1 for 0 words"),
        ({"words": ["a"], "tags": ["B-PRE"]}, r"dev:7: tags: found 'B-PRE'.*did you mean 'B-PER'"),
    ],
)
def test_bad_rows_are_named(values, message):
    head, _ = built()
    with pytest.raises(DataError, match=message):
        head.encode(Example(values, "dev:7"), TOKENIZER, 12)


def test_training_without_tags_is_refused():
    with pytest.raises(DataError, match="tags: found none in the training data"):
        built([])
