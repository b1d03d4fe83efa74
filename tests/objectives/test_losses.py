"""Heads, losses, metrics and decoding against Hugging Face and naive counts."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertForPreTraining

from bertlab.api.batch import EncoderOutput, PackedBatch, pack
from bertlab.api.task import TaskContext
from bertlab.encoders.bert import BertEncoder
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.objectives.language_model import CausalLM
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.tokenizer.files import WordPieceTokenizer
from tests.objectives.samples import (
    CLS,
    FIRST_WORD,
    MASK,
    RNG,
    SEP,
    VOCAB,
    ToyEncoder,
    ToyTokenizer,
    built,
    many,
    packed,
    pair,
)

HEAD = {"dense.weight", "dense.bias", "layer_norm.weight", "layer_norm.bias", "bias"}


@pytest.fixture
def hugging_face():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(vocab_size=VOCAB, intermediate_size=64, **sizes)
    model = BertForPreTraining(config).eval()
    for parameter in model.parameters():  # away from the init, so that every term matters
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def with_hugging_face_weights(objective, model):
    encoder = ToyEncoder(32)
    encoder.token_embedding = model.bert.embeddings.word_embeddings
    objective.build(TaskContext(encoder, ToyTokenizer()))
    if isinstance(objective, NextSentencePrediction):
        objective.classifier.load_state_dict(model.cls.seq_relationship.state_dict())
    else:
        head = model.cls.predictions
        objective.dense.load_state_dict(head.transform.dense.state_dict())
        objective.layer_norm.load_state_dict(head.transform.LayerNorm.state_dict())
        objective.bias.data.copy_(head.bias)
    return objective


def padded(batch: PackedBatch, flat: torch.Tensor, fill: int = 0) -> torch.Tensor:
    rows = flat.new_full((len(batch) * batch.max_seqlen,), fill)
    rows[batch.padded_index] = flat
    return rows.view(len(batch), -1)


def test_losses_and_logits_equal_hugging_face(hugging_face):
    mlm = with_hugging_face_weights(MaskedLM(), hugging_face)
    nsp = with_hugging_face_weights(NextSentencePrediction(), hugging_face)
    sequences = packed([pair(9 + 7 * i, 30 - 5 * i, index=i) for i in range(5)])
    sequences.fields["next_sentence_label"] = np.array([0, 1, 1, 0, 1])
    counts = (mlm.prepare(sequences, RNG, True), nsp.prepare(sequences, RNG, True))
    batch = sequences.to_batch()
    labels = torch.full_like(batch.input_ids, -100)
    labels[batch.fields["mlm_positions"]] = batch.fields["mlm_labels"]
    with torch.no_grad():
        inputs = {
            "input_ids": padded(batch, batch.input_ids),
            "token_type_ids": padded(batch, batch.token_type_ids),
            "attention_mask": batch.attention_mask.long(),
        }
        theirs = hugging_face(
            **inputs,
            labels=padded(batch, labels, -100),
            next_sentence_label=batch.fields["next_sentence_label"],
        )
        hidden = hugging_face.bert(**inputs).last_hidden_state.flatten(0, 1)[batch.padded_index]
        pooler = hugging_face.bert.pooler
        output = EncoderOutput(hidden, batch, lambda cls: pooler(cls[:, None]))
        ours = [mlm.loss(output, batch), nsp.loss(output, batch)]
        logits = mlm.logits(hidden)
        relationship = nsp.classifier(output.pooled)
    assert tuple(loss.count for loss in ours) == counts
    total = sum(loss.sum / loss.count for loss in ours)
    torch.testing.assert_close(total, theirs.loss, atol=1e-5, rtol=0)
    their_logits = theirs.prediction_logits.flatten(0, 1)[batch.padded_index]
    torch.testing.assert_close(logits, their_logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(relationship, theirs.seq_relationship_logits, atol=1e-5, rtol=0)
    chosen = batch.fields["mlm_positions"]
    assert torch.equal(ours[0].preds, their_logits[chosen].argmax(-1))
    assert torch.equal(ours[1].preds, theirs.seq_relationship_logits.argmax(-1))


@pytest.mark.parametrize("kind", [MaskedLM, CausalLM])
def test_head_owns_no_embedding_and_every_gradient_arrives(kind):
    objective, encoder = built(kind())
    assert set(objective.state_dict()) == HEAD
    assert len(list(objective.parameters())) == 5
    assert objective.dense.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert objective.bias.abs().sum() == objective.dense.bias.abs().sum() == 0
    batch_of = packed([pair(30, 30), pair(20, 10, index=1)])
    count = objective.prepare(batch_of, RNG, True)
    batch = batch_of.to_batch()
    result = objective.loss(encoder(batch), batch)
    assert result.count == count == len(result.preds) == len(result.target)
    assert result.sum.shape == ()
    assert result.sum.dtype == torch.float32
    result.sum.backward()
    for name, parameter in objective.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    # a row that no input reads gets its gradient through the tied decoder alone
    unread = next(i for i in range(FIRST_WORD, VOCAB) if i not in set(batch.input_ids.tolist()))
    assert encoder.token_embedding.weight.grad[unread].abs().sum() > 0


def test_next_sentence_gradient_arrives():
    objective, encoder = built(NextSentencePrediction())
    sequences = packed([pair(5, 5, index=i) for i in range(4)])
    sequences.fields["next_sentence_label"] = np.array([0, 1, 1, 1])
    assert objective.prepare(sequences, RNG, True) == 4
    batch = sequences.to_batch()
    objective.loss(encoder(batch), batch).sum.backward()
    assert all(p.grad.abs().sum() > 0 for p in objective.parameters())
    assert encoder.pooler.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", [MaskedLM, CausalLM])
def test_no_prediction_is_a_zero_loss_with_zero_gradients(kind):
    objective, encoder = built(kind())
    sequences = packed([pair(0, 0)])
    assert objective.prepare(sequences, RNG, True) == 0
    batch = sequences.to_batch()
    result = objective.loss(encoder(batch), batch)
    result.sum.backward()
    assert result.sum.item() == result.count == 0
    for parameter in (*objective.parameters(), encoder.token_embedding.weight):
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_bf16_autocast_is_finite_and_float32():
    sequences = many(4)
    sequences.fields["next_sentence_label"] = np.array([0, 1, 1, 0])
    for kind in (MaskedLM, CausalLM, NextSentencePrediction):
        objective, encoder = built(kind())
        objective.prepare(sequences, RNG, True)
        batch = sequences.to_batch()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = objective.loss(encoder(batch), batch)
        result.sum.backward()
        assert result.sum.dtype == torch.float32
        assert result.sum.isfinite()
        assert all(p.grad.isfinite().all() for p in objective.parameters())


def test_causal_targets_are_the_next_text_token_of_the_same_sequence():
    objective, _ = built(CausalLM())
    sequences = packed([pair(4, 3), pair(0, 0, index=1), pair(2, 5, index=2)])
    before = sequences.input_ids.copy()
    count = objective.prepare(sequences, RNG, True)
    expected = []
    of = sequences.sequence_of_token
    for t in range(len(before) - 1):
        if of[t] == of[t + 1] and before[t + 1] >= FIRST_WORD:
            expected.append((t, before[t + 1]))
    found = zip(sequences.fields["clm_positions"], sequences.fields["clm_labels"], strict=True)
    assert list(found) == expected
    assert count == len(expected) > 10
    assert np.array_equal(sequences.input_ids, before)


def test_causal_shift_stays_inside_sequences_without_special_tokens():
    objective, _ = built(CausalLM())
    rows = [pair(3, 0, index=i) for i in range(3)]
    for row in rows:
        row.ids, row.types, row.offsets = np.array([7, 8, 9]), np.zeros(3), np.arange(3)
    sequences = packed(rows)
    objective.prepare(sequences, RNG, False)
    assert sequences.fields["clm_positions"].tolist() == [0, 1, 3, 4, 6, 7]
    assert sequences.fields["clm_labels"].tolist() == [8, 9, 8, 9, 8, 9]


@pytest.mark.parametrize("kind", [MaskedLM, CausalLM])
def test_metrics_equal_naive_counts(kind):
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 50, VOCAB)
    counts[MASK], counts[17] = 10_000, 90  # 17 is the commonest of those that can be targets
    objective, _ = built(kind(), counts)
    target = generator.integers(FIRST_WORD, VOCAB, 500)
    target[::5] = 17
    preds = np.where(generator.random(500) < 0.4, target, 3)
    metrics = objective.metrics()
    assert set(metrics) == {"accuracy", "unigram_loss", "unigram_accuracy"}
    values = {}
    for name, metric in metrics.items():
        other = objective.metrics()[name]  # the second of two processes
        metric.update(torch.from_numpy(preds[:200]), torch.from_numpy(target[:200]))
        for part in (slice(200, 200), slice(200, 350), slice(350, 500)):
            other.update(torch.from_numpy(preds[part]), torch.from_numpy(target[part]))
        metric.merge_state(other)
        values[name] = metric.compute().item()
    ordinary = [0 if i < FIRST_WORD else int(count) for i, count in enumerate(counts)]
    total = sum(count + 1 for count in ordinary)
    surprise = [-math.log((ordinary[t] + 1) / total) for t in target]
    assert values["accuracy"] == pytest.approx(sum(preds == target) / 500)
    assert values["unigram_loss"] == pytest.approx(sum(surprise) / 500, rel=1e-5)
    assert values["unigram_accuracy"] == pytest.approx(sum(target == 17) / 500)
    assert objective.derived_metrics({"loss": 2.5})["perplexity"] == pytest.approx(math.exp(2.5))
    assert objective.derived_metrics({"loss": 1e4})["perplexity"] == math.inf


def test_baselines_need_token_counts():
    objective, _ = built(MaskedLM())
    assert set(objective.metrics()) == {"accuracy"}


def test_next_sentence_metrics_equal_naive_counts():
    objective, _ = built(NextSentencePrediction())
    target = torch.tensor([0, 1, 1, 1, 0, 1, 1])
    preds = torch.tensor([0, 1, 0, 1, 1, 1, 1])
    values = {}
    for name, metric in objective.metrics().items():
        other = objective.metrics()[name]
        metric.update(preds[:3], target[:3])
        other.update(preds[3:], target[3:])
        metric.merge_state(other)
        values[name] = metric.compute().item()
    assert values == pytest.approx({"accuracy": 5 / 7, "majority_accuracy": 5 / 7})


def test_masked_fillers_by_sequence():
    objective, encoder = built(MaskedLM())
    objective.bias.data[[50, 51, 52, 53, 54]] = torch.tensor([9.0, 8.0, 7.0, 6.0, 5.0])
    ids = [[CLS, MASK, 9, MASK, SEP], [CLS, 9, SEP], [CLS, MASK, SEP]]
    batch = pack(ids)
    rows = objective.decode(encoder(batch), batch)
    assert [len(row["fillers"]) for row in rows] == [2, 0, 1]
    for fillers in (fillers for row in rows for fillers in row["fillers"]):
        assert [filler["token"] for filler in fillers] == ["t50", "t51", "t52", "t53", "t54"]
        probabilities = [filler["probability"] for filler in fillers]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) < 1
    objective.top_k = 2
    assert len(objective.decode(encoder(batch), batch)[0]["fillers"][0]) == 2


def test_causal_decode_continues_after_the_last_text_token():
    objective, encoder = built(CausalLM())
    batch = pack([[CLS, 8, 9, SEP], [CLS, SEP], [CLS, 8, SEP, 11, SEP]])
    rows = objective.decode(encoder(batch), batch)
    hidden = encoder.token_embedding(torch.tensor([9, CLS, 11]))
    best = objective.logits(hidden).argmax(-1).tolist()
    assert [row["next"][0]["token"] for row in rows] == [f"t{token}" for token in best]


def test_next_sentence_decode_gives_the_probability_that_b_follows():
    objective, encoder = built(NextSentencePrediction())
    objective.classifier.bias.data = torch.tensor([math.log(3.0), 0.0])
    objective.classifier.weight.data.zero_()
    batch = pack([[CLS, 8, SEP, 9, SEP], [CLS, 8, SEP]], [[0, 0, 0, 1, 1], [0, 0, 0]])
    pair, single = objective.decode(encoder(batch), batch)
    assert pair == {"is_next_probability": pytest.approx(0.75)}
    assert single == {}


class NoTensors(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError(f"prepare called {func}")


@pytest.mark.parametrize("kind", [MaskedLM, CausalLM, NextSentencePrediction])
def test_a_pickled_objective_prepares_the_same_without_torch(kind):
    objective, _ = built(kind())
    copy = pickle.loads(pickle.dumps(objective))
    one, two = many(4), many(4)
    count = objective.prepare(one, RNG, True)
    with NoTensors():
        assert copy.prepare(two, RNG, True) == count
    assert np.array_equal(one.input_ids, two.input_ids)
    assert one.fields.keys() == two.fields.keys()
    assert all(np.array_equal(one.fields[name], two.fields[name]) for name in one.fields)


def test_real_tokenizer_and_encoder_fit_the_objectives():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "the", "city", "##ing", "##ed"]
    tokenizer = WordPieceTokenizer.from_vocabulary(words)
    encoder = BertEncoder(len(words), hidden_size=16, num_attention_heads=2, num_hidden_layers=1)
    objective = MaskedLM(rate=0.5, unit="whole_word")
    objective.build(TaskContext(encoder.eval(), tokenizer, np.arange(len(words))))
    text = tokenizer.encode("playing the city played")  # play ##ing the city play ##ed
    ids = [tokenizer.cls_id, *text, tokenizer.sep_id]
    sequences = packed(
        [
            SimpleNamespace(ids=ids, types=[0] * 8, offsets=[-1, *range(6), -1], index=i)
            for i in range(50)
        ]
    )
    pickle.loads(pickle.dumps(objective)).prepare(sequences, RNG, True)
    chosen = np.zeros(400, dtype=bool)
    chosen[sequences.fields["mlm_positions"]] = True
    chosen = chosen.reshape(50, 8)
    assert np.array_equal(chosen[:, 1], chosen[:, 2])
    assert np.array_equal(chosen[:, 5], chosen[:, 6])
    assert not chosen[:, [0, 7]].any()
    assert chosen.sum() == pytest.approx(150, abs=25)
    batch = sequences.to_batch()
    assert objective.loss(encoder(batch), batch).sum.isfinite()
    fillers = objective.decode(encoder(batch), batch)[0]["fillers"]
    assert all(filler["token"] in words for best in fillers for filler in best)


def test_the_activation_of_the_head_may_be_a_module_of_the_encoder() -> None:
    class Albert(BertEncoder):
        def __init__(self) -> None:
            super().__init__(VOCAB, preset="tiny")
            self.activation = torch.nn.Tanh()

    for encoder, expected in ((Albert(), torch.tanh), (BertEncoder(VOCAB, preset="tiny"), F.gelu)):
        head = MaskedLM()
        head.build(TaskContext(encoder.eval(), ToyTokenizer()))
        states = torch.randn(3, encoder.hidden_size)
        transformed = head.layer_norm(expected(head.dense(states)))
        scores = transformed @ encoder.token_embedding.weight.T + head.bias
        torch.testing.assert_close(head.logits(states), scores)
