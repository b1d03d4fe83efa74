"""BidirectionalLM: the conformance kit, and what is its own."""

import math

import numpy as np
import pytest
import torch

from bertlab import (
    BertEncoder,
    ConfigError,
    CounterRNG,
    PackedBatch,
    PackedSequences,
    TaskContext,
    WordPieceTokenizer,
)
from bertlab.extend import check_tasks
from bertlab.testing import conformance
from bertlab_elmo.bilm import BidirectionalLM, neighbors
from bertlab_elmo.encoder import ElmoEncoder


def small_elmo(vocab_size: int) -> ElmoEncoder:
    """Return an encoder of width 16."""
    return ElmoEncoder(
        vocab_size,
        hidden_size=16,
        cell_size=None,
        max_position_embeddings=64,
        initializer_range=1.0,
    )


test_conformance = conformance(BidirectionalLM, encoder=small_elmo)

PAD, UNK, CLS, SEP, MASK = range(5)
TOKENIZER = WordPieceTokenizer.from_vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
)
A, B, C, D = range(5, 9)


def built(token_counts: np.ndarray | None = None) -> tuple[ElmoEncoder, BidirectionalLM]:
    torch.manual_seed(0)
    encoder, objective = small_elmo(TOKENIZER.vocab_size).eval(), BidirectionalLM()
    objective.build(TaskContext(encoder, TOKENIZER, token_counts))
    return encoder, objective.eval()


def labelled(objective: BidirectionalLM, *ids: list[int]) -> tuple[PackedBatch, int]:
    flat, lengths = np.concatenate(ids), [len(each) for each in ids]
    sequences = PackedSequences(
        input_ids=flat,
        token_type_ids=np.zeros_like(flat),
        position_ids=np.concatenate([np.arange(length) for length in lengths]),
        cu_seqlens=np.cumsum([0, *lengths]),
        corpus_offsets=np.where(flat > MASK, np.arange(len(flat)), -1),
        epochs=np.zeros(len(ids), np.int64),
        indices=np.arange(len(ids)),
    )
    count = objective.prepare(sequences, CounterRNG(1, "tests"), training=True)
    return sequences.to_batch(), count


def test_every_text_token_is_predicted_from_both_sides() -> None:
    batch, count = labelled(built()[1], [CLS, A, B, SEP, C, SEP], [CLS, D, SEP])
    assert batch.fields["bilm_positions"].tolist() == [1, 2, 4, 7]
    assert batch.fields["bilm_labels"].tolist() == [A, B, C, D]
    assert count == 8


def test_text_at_the_border_of_a_sequence_has_no_state_to_be_predicted_from() -> None:
    batch, count = labelled(built()[1], [A, B, C])
    assert batch.fields["bilm_positions"].tolist() == [1]
    assert count == 2


@torch.no_grad()
def test_nothing_sees_the_token_that_it_predicts() -> None:
    encoder, objective = built()
    batch, _ = labelled(objective, [CLS, A, B, C, SEP], [CLS, D, A, SEP])
    logits = objective.logits(neighbors(encoder(batch).tokens, batch.fields["bilm_positions"]))
    for number, position in enumerate(batch.fields["bilm_positions"].tolist()):
        changed, _ = labelled(objective, [CLS, A, B, C, SEP], [CLS, D, A, SEP])
        changed.input_ids[position] = 12
        states = neighbors(encoder(changed).tokens, batch.fields["bilm_positions"])
        differs = (objective.logits(states) != logits).any(-1)
        forward, backward = differs.chunk(2)
        assert not forward[number]
        assert not backward[number]
        assert forward.any() or backward.any()  # of its neighbors


@torch.no_grad()
def test_the_loss_is_that_of_one_prediction_after_the_other() -> None:
    encoder, objective = built()
    ids = [CLS, A, B, C, SEP]
    batch, _ = labelled(objective, ids, [CLS, D, SEP])
    output = encoder(batch)
    loss = objective.loss(output, batch)
    forward, backward = output.tokens.chunk(2, dim=-1)
    expected = 0.0
    for place, token in [(1, A), (2, B), (3, C), (6, D)]:
        for state in (forward[place - 1], backward[place + 1]):
            expected -= objective.logits(state[None]).log_softmax(-1)[0, token].item()
    assert loss.count == 8
    assert loss.sum.item() == pytest.approx(expected, rel=1e-5)
    assert loss.target.tolist() == [A, B, C, D] * 2


def test_the_unigram_perplexity_is_that_of_the_training_text() -> None:
    counts = np.zeros(TOKENIZER.vocab_size, np.int64)
    counts[[A, B]] = 99, 49
    _, objective = built(counts)
    metrics = objective.metrics()
    target = torch.tensor([A, A, B])
    for metric in metrics.values():
        metric.update(torch.tensor([A, B, B]), target)
    values = {name: float(metric.compute()) for name, metric in metrics.items()} | {"loss": 2.0}
    derived = objective.derived_metrics(values)
    total = 99 + 49 + TOKENIZER.vocab_size
    expected = (100 / total * 100 / total * 50 / total) ** (-1 / 3)
    assert derived["unigram_perplexity"] == pytest.approx(expected, rel=1e-5)
    assert derived["perplexity"] == pytest.approx(math.exp(2.0))
    assert values["accuracy"] == pytest.approx(2 / 3)


def test_predictions_follow_the_last_word_and_come_before_the_first() -> None:
    encoder, objective = built()
    batch, _ = labelled(objective, [CLS, A, B, C, SEP], [CLS, SEP])
    with torch.no_grad():
        output = encoder(batch)
        text, nothing = objective.decode(output, batch)
        forward, backward = output.tokens.chunk(2, dim=-1)
        following, before = objective.logits(forward[3:4]), objective.logits(backward[1:2])
        opening, closing = objective.logits(forward[5:6]), objective.logits(backward[6:7])
    for found, logits in [
        (text["next"], following),
        (text["previous"], before),
        (nothing["next"], opening),
        (nothing["previous"], closing),
    ]:
        assert len(found) == 5
        assert found[0]["token"] == TOKENIZER.token(int(logits.argmax()))
        assert found[0]["probability"] == pytest.approx(logits.softmax(-1).max().item(), rel=1e-5)


def test_the_softmax_is_shared_by_both_directions_and_with_the_token_embedding() -> None:
    encoder, objective = built()
    batch, _ = labelled(objective, [CLS, A, B, SEP])
    objective.loss(encoder(batch), batch).sum.backward()
    assert encoder.token_embedding.weight.grad is not None
    assert (encoder.token_embedding.weight.grad != 0).any(-1).all()  # as scores, of tokens unread
    assert {name for name, _ in objective.named_parameters()} == {
        "bias",
        "dense.weight",
        "dense.bias",
        "layer_norm.weight",
        "layer_norm.bias",
    }


def test_an_encoder_that_mixes_the_directions_is_refused() -> None:
    bert = BertEncoder(TOKENIZER.vocab_size, "tiny")
    with pytest.raises(ConfigError, match=r"bilm needs an encoder whose keeps_directions_apart"):
        check_tasks({"bilm": BidirectionalLM()}, bert)
    check_tasks({"bilm": BidirectionalLM()}, small_elmo(TOKENIZER.vocab_size))


def test_it_learns_a_text_whose_order_is_certain() -> None:
    """After a comes b, after b c; before them likewise: both perplexities go to 1."""
    encoder, objective = built()
    parameters = [*encoder.parameters(), *objective.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.02)
    for _ in range(60):
        batch, count = labelled(objective, [CLS, A, B, C, D, SEP], [CLS, A, B, C, D, SEP])
        loss = objective.loss(encoder(batch), batch)
        optimizer.zero_grad()
        (loss.sum / count).backward()
        optimizer.step()
    assert loss.sum.item() / count < 0.05
