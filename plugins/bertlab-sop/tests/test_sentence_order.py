"""SentenceOrder: the conformance kit, and what is its own."""

import numpy as np
import pytest
import torch

from bertlab import (
    BertEncoder,
    CounterRNG,
    MaskedLM,
    PackedSequences,
    TaskContext,
    TaskLoss,
    WordPieceTokenizer,
    pack,
    prepare_sequences,
)
from bertlab.testing import conformance
from bertlab_sop.sentence_order import NOT_A_PAIR, SWAPPED, SentenceOrder

test_conformance = conformance(SentenceOrder)

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = [f"w{number}" for number in range(200)]
FULL_STOP = 5
TOKENIZER = WordPieceTokenizer.from_vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
)
RNG = CounterRNG(3, "tests")


def context() -> TaskContext:
    torch.manual_seed(0)
    encoder = BertEncoder(TOKENIZER.vocab_size, "tiny", hidden_size=16, num_attention_heads=2)
    return TaskContext(encoder, TOKENIZER)


def built() -> SentenceOrder:
    objective = SentenceOrder()
    objective.build(context())
    return objective


def pairs(count: int, epoch: int = 0, random_b: int = 0) -> PackedSequences:
    """Pairs of growing words: A ends with a full stop, B is cut; the last ones have a random B."""
    ids = []
    for number in range(count):
        a, b = 1 + number % 7, 1 + number % 5
        first = 6 + 2 * number % 180
        text = list(range(first, first + a + b))
        ids.append([CLS, *text[:a], FULL_STOP, SEP, *text[a:], SEP])
    lengths = [len(each) for each in ids]
    kinds = [[0] * (3 + n % 7 + 1) + [1] * (2 + n % 5) for n in range(count)]
    flat = np.concatenate(ids)
    labels = np.zeros(count, np.int64)
    labels[count - random_b :] = 1
    return PackedSequences(
        input_ids=flat,
        token_type_ids=np.concatenate(kinds),
        position_ids=np.concatenate([np.arange(n) for n in lengths]),
        cu_seqlens=np.cumsum([0, *lengths]),
        corpus_offsets=np.where(flat > MASK, np.arange(len(flat)), -1),
        epochs=np.full(count, epoch),
        indices=np.arange(count),
        fields={"next_sentence_label": labels},
    )


def test_half_of_the_pairs_are_swapped_and_the_label_says_which() -> None:
    before, sequences = pairs(2000), pairs(2000)
    assert built().prepare(sequences, RNG, training=True) == 2000
    labels = sequences.fields["sentence_order_label"]
    assert labels.mean() == pytest.approx(0.5, abs=0.04)
    starts, stops = before.cu_seqlens[:-1], before.cu_seqlens[1:]
    for start, stop, label in zip(starts, stops, labels, strict=True):
        a, b = np.split(before.input_ids[start + 1 : stop - 1], [_sep(before, start) - start - 1])
        expected = [*b[1:], SEP, *a] if label == SWAPPED else [*a, *b]
        assert sequences.input_ids[start + 1 : stop - 1].tolist() == expected


def test_a_random_b_is_left_as_it_is_and_not_counted() -> None:
    before, sequences = pairs(100, random_b=40), pairs(100, random_b=40)
    assert built().prepare(sequences, RNG, training=True) == 60
    assert (sequences.fields["sentence_order_label"][60:] == NOT_A_PAIR).all()
    assert (sequences.fields["sentence_order_label"][:60] != NOT_A_PAIR).all()
    tail = slice(before.cu_seqlens[60], None)
    np.testing.assert_array_equal(sequences.input_ids[tail], before.input_ids[tail])
    np.testing.assert_array_equal(
        sequences.fields["next_sentence_label"], before.fields["next_sentence_label"]
    )


def test_training_swaps_anew_in_every_epoch_and_evaluation_never() -> None:
    objective = built()
    drawn = {}
    for training in (True, False):
        for epoch in (0, 1):
            sequences = pairs(200, epoch)
            objective.prepare(sequences, RNG, training)
            drawn[training, epoch] = sequences.fields["sentence_order_label"]
    assert not np.array_equal(drawn[True, 0], drawn[True, 1])
    np.testing.assert_array_equal(drawn[False, 0], drawn[False, 1])


@pytest.mark.parametrize("names", [("mlm", "sop"), ("sop", "mlm")])
def test_mlm_masks_what_has_been_swapped(names: tuple[str, str]) -> None:
    """A label of mlm is the id that stands at its place after the swap."""
    given = context()
    objectives = {"mlm": MaskedLM(), "sop": built()}
    objectives["mlm"].build(given)
    text, sequences = pairs(200), pairs(200)
    prepare_sequences(sequences, {name: objectives[name] for name in names}, 5, training=True)
    positions = sequences.token_labels("mlm").positions
    offsets = sequences.corpus_offsets[positions]
    np.testing.assert_array_equal(sequences.token_labels("mlm").labels, text.input_ids[offsets])
    assert (sequences.input_ids == MASK).sum() > 0
    assert (sequences.fields["sentence_order_label"] == SWAPPED).sum() > 0


def test_the_rule_reads_the_end_of_the_first_segment() -> None:
    """A ends with a full stop and B is cut, so the rule is always right."""
    sequences = pairs(50)
    built().prepare(sequences, RNG, training=True)
    np.testing.assert_array_equal(
        sequences.fields["sentence_order_rule"], sequences.fields["sentence_order_label"]
    )


def test_metrics_count_as_a_loop_does() -> None:
    objective = built()
    model, rule, label = np.random.default_rng(1).integers(0, 2, (3, 70))
    metrics = objective.metrics()
    for part in (slice(0, 50), slice(50, 70)):
        preds, target, answers = (torch.from_numpy(x)[part] for x in (model, label, rule))
        loss = TaskLoss(torch.tensor(0.0), len(target), preds, target, {"rule": answers})
        for metric in metrics.values():
            loss.update(metric)
    found = {name: float(metric.compute()) for name, metric in metrics.items()}
    assert found["accuracy"] == pytest.approx((model == label).mean())
    assert found["rule_accuracy"] == pytest.approx((rule == label).mean())
    assert found["majority_accuracy"] == pytest.approx(max(label.mean(), 1 - label.mean()))


def test_the_loss_is_that_of_the_neighbouring_pairs_only() -> None:
    objective = built()
    given = context()
    sequences = pairs(12, random_b=5)
    objective.prepare(sequences, RNG, training=True)
    batch = sequences.to_batch()
    output = given.encoder.eval()(batch)
    loss = objective.loss(output, batch)
    logits = objective.classifier(output.pooled)[:7]
    labels = torch.from_numpy(sequences.fields["sentence_order_label"])[:7]
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    assert loss.count == 7
    torch.testing.assert_close(loss.sum, expected)


def test_a_single_segment_has_no_order() -> None:
    objective = built()
    batch = pack([[CLS, 7, 8, SEP], [CLS, 7, SEP, 8, SEP]], [[0, 0, 0, 0], [0, 0, 0, 1, 1]])
    with torch.no_grad():
        single, pair = objective.decode(context().encoder(batch), batch)
    assert single == {}
    assert 0 < pair["in_order_probability"] < 1


def _sep(sequences: PackedSequences, start: int) -> int:
    """Return the place of the first ``[SEP]`` from a place on."""
    return int(start + np.argmax(sequences.input_ids[start:] == SEP))
