"""ReplacedTokenDetection: the conformance kit, and what is its own."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import ElectraConfig
from transformers.models.electra.modeling_electra import ElectraDiscriminatorPredictions

from bertlab import (
    BertEncoder,
    ConfigError,
    CounterRNG,
    PackedBatch,
    PackedSequences,
    TaskContext,
    TaskLoss,
    WordPieceTokenizer,
)
from bertlab.testing import conformance
from bertlab_electra.replaced_tokens import ReplacedTokenDetection

test_conformance = conformance(ReplacedTokenDetection)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNK, CLS, SEP, MASK = range(1, 5)
TOKENIZER = WordPieceTokenizer.from_vocabulary([*SPECIAL, *(f"w{n}" for n in range(95))])
RNG = CounterRNG(3, "tests")


class Built:
    """The objective, built for a small encoder, without dropout."""

    def __init__(self, **arguments: float) -> None:
        torch.manual_seed(0)
        self.encoder = BertEncoder(
            TOKENIZER.vocab_size, "tiny", hidden_size=32, num_attention_heads=2
        ).eval()
        self.objective = ReplacedTokenDetection(**arguments).eval()  # type: ignore[arg-type]
        self.objective.build(TaskContext(self.encoder, TOKENIZER))
        self.objective.eval()

    def batch(self, sequences: PackedSequences, training: bool = True) -> PackedBatch:
        self.objective.prepare(sequences, RNG, training)
        return sequences.to_batch()


def texts(count: int, length: int = 40, epoch: int = 0) -> PackedSequences:
    """Sequences of random words, one ``[UNK]`` in a hundred."""
    words = np.random.default_rng(0).integers(MASK + 1, 100, (count, length))
    words[np.random.default_rng(1).random((count, length)) < 0.01] = UNK
    edge = np.ones((count, 1), np.int64)
    ids = np.hstack([CLS * edge, words, SEP * edge]).ravel()
    offsets = np.hstack([-edge, np.arange(words.size).reshape(words.shape), -edge]).ravel()
    return PackedSequences(
        input_ids=ids,
        token_type_ids=np.zeros_like(ids),
        position_ids=np.tile(np.arange(length + 2), count),
        cu_seqlens=np.arange(count + 1) * (length + 2),
        corpus_offsets=offsets,
        epochs=np.full(count, epoch),
        indices=np.arange(count),
    )


@pytest.mark.parametrize(
    ("arguments", "training", "rate", "mask_share"),
    [
        ({}, True, 0.15, 0.85),
        ({"rate": 0.4, "mask_share": 1.0}, True, 0.4, 1.0),
        ({"rate": 0.4, "mask_share": 1.0}, False, 0.15, 0.85),
    ],
)
def test_shares_of_selected_and_masked(
    arguments: dict[str, float], training: bool, rate: float, mask_share: float
) -> None:
    fresh, sequences = texts(500), texts(500)
    count = Built(**arguments).objective.prepare(sequences, RNG, training)
    fields = sequences.fields
    assert count == (fresh.input_ids > MASK).sum() == len(fields["rtd_tokens"])
    assert (fresh.input_ids[fields["rtd_tokens"]] > MASK).all()
    positions = fields["rtd_positions"]
    np.testing.assert_array_equal(fields["rtd_labels"], fresh.input_ids[positions])
    assert len(positions) / count == pytest.approx(rate, rel=0.01)
    masked = sequences.input_ids[positions] == MASK
    assert masked.mean() == pytest.approx(mask_share, abs=0.02)
    others = np.delete(np.arange(len(fresh.input_ids)), positions[masked])
    np.testing.assert_array_equal(sequences.input_ids[others], fresh.input_ids[others])


def test_evaluation_draws_the_same_masks_and_noise_in_every_epoch() -> None:
    built = Built()
    for training in (True, False):
        one, other = (built.batch(texts(20, epoch=epoch), training).fields for epoch in (0, 1))
        same = torch.equal(one["rtd_positions"], other["rtd_positions"])
        assert same is not training
        if not training:
            assert torch.equal(one["rtd_noise"], other["rtd_noise"])


def test_only_selected_tokens_are_replaced_and_a_lucky_sample_is_an_original() -> None:
    built = Built()
    fresh = torch.from_numpy(texts(200).input_ids)
    rewritten = built.objective.rewrite_input(built.batch(texts(200)))
    positions = rewritten.fields["rtd_positions"]
    selected = torch.zeros_like(fresh).index_fill(0, positions, 1)
    assert torch.equal(rewritten.fields["rtd_selected"], selected)
    differs = (rewritten.input_ids != fresh).long()
    assert torch.equal(rewritten.fields["rtd_replaced"], differs)
    assert not (differs & ~selected.bool()).any()
    lucky = int((selected - differs).sum())
    assert 0 < lucky < len(positions) / 10  # about one in 95 from an untrained generator
    assert (rewritten.input_ids[positions] > MASK).all()


def test_samples_do_not_depend_on_the_batch() -> None:
    built = Built()
    together = built.objective.rewrite_input(built.batch(texts(12))).input_ids
    alone = []
    for number in range(12):
        sequences = texts(12)
        part = slice(number * 42, (number + 1) * 42)
        one = dataclasses.replace(
            sequences,
            input_ids=sequences.input_ids[part],
            token_type_ids=sequences.token_type_ids[part],
            position_ids=sequences.position_ids[part],
            corpus_offsets=sequences.corpus_offsets[part],
            cu_seqlens=np.array([0, 42]),
            epochs=sequences.epochs[:1],
            indices=np.array([number]),
        )
        alone.append(built.objective.rewrite_input(built.batch(one)).input_ids)
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_the_mean_of_the_loss_is_the_papers(rate: float) -> None:
    """Mean masked-LM loss of the selected plus 50 times the mean detection loss of all tokens."""
    built = Built(rate=rate)
    batch = built.objective.rewrite_input(built.batch(texts(100)))
    config = ElectraConfig(hidden_size=32, hidden_act="gelu")
    peer = ElectraDiscriminatorPredictions(config)
    peer.load_state_dict(
        {
            name: tensor
            for name, tensor in built.objective.state_dict().items()
            if name.startswith("dense")
        }
    )
    with torch.no_grad():
        output = built.encoder(batch)
        loss = built.objective.loss(output, batch)
        scores = built.objective.generator(built.batch(texts(100)), batch.fields["rtd_positions"])
        generation = F.cross_entropy(scores, batch.fields["rtd_labels"])
        tokens = batch.fields["rtd_tokens"]
        logits = peer(output.tokens)[tokens]
        truth = batch.fields["rtd_replaced"][tokens].float()
        detection = F.binary_cross_entropy_with_logits(logits, truth)
    # K is rate times N but for the rounding of each sequence's budget
    share = len(batch.fields["rtd_positions"]) / (rate * loss.count)
    assert share == pytest.approx(1, abs=0.01)
    expected = generation * share + 50 * detection
    torch.testing.assert_close(loss.sum / loss.count, expected)


def test_no_gradient_goes_through_the_samples() -> None:
    """The detection's weight changes no gradient of the generator's own layers."""
    gradients = []
    for weight in (0.0, 50.0):
        built = Built(discriminator_weight=weight)
        batch = built.objective.rewrite_input(built.batch(texts(10)))
        built.objective.loss(built.encoder(batch), batch).sum.backward()
        own = built.objective.generator.named_parameters()
        gradients.append({name: parameter.grad for name, parameter in own})
        first_layer = built.encoder.layers[0].intermediate.weight.grad
        assert bool(first_layer.any()) is (weight > 0)  # the encoder learns from detection only
        assert built.encoder.token_embedding.weight.grad.any()  # and shares its embedding
    torch.testing.assert_close(gradients[0], gradients[1])


def test_metrics_count_as_a_loop_does() -> None:
    generator = np.random.default_rng(1)
    selected = generator.random(400) < 0.3
    replaced = selected & (generator.random(400) < 0.7)
    judged = generator.random(400) < 0.4
    metrics = ReplacedTokenDetection().metrics()
    for part in (slice(0, 300), slice(300, 400)):
        preds, target = (torch.from_numpy(x.astype(int))[part] for x in (judged, replaced))
        extras = {"selected": torch.from_numpy(selected)[part]}
        loss = TaskLoss(torch.tensor(0.0), len(target), preds, target, extras)
        for metric in metrics.values():
            loss.update(metric)
    hits = (judged & replaced).sum()
    precision, recall = hits / judged.sum(), hits / replaced.sum()
    expected = {
        "accuracy": (judged == replaced).mean(),
        "majority_accuracy": 1 - replaced.mean(),
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall),
        "generator_accuracy": 1 - replaced[selected].mean(),
    }
    found = {name: float(metric.compute()) for name, metric in metrics.items()}
    assert found == pytest.approx(expected)


def test_each_token_of_a_text_gets_its_probability() -> None:
    built = Built()
    batch = texts(2, length=3).to_batch()
    batch.input_ids = torch.tensor([CLS, 5, UNK, 7, SEP, CLS, 8, 9, 10, SEP])
    with torch.no_grad():
        one, other = built.objective.decode(built.encoder(batch), batch)
    assert [entry["token"] for entry in one["replaced"]] == ["w0", "w2"]
    assert [entry["token"] for entry in other["replaced"]] == ["w3", "w4", "w5"]
    assert all(0 < entry["probability"] < 1 for entry in one["replaced"] + other["replaced"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("generator_size", 0.0),
        ("generator_size", 1.5),
        ("generator_layers", 0),
        ("discriminator_weight", -1.0),
        ("rate", 0.0),
        ("mask_share", 1.1),
    ],
)
def test_an_argument_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"model.objectives.rtd.{name}: found {value}, expected"):
        ReplacedTokenDetection(**{name: value})  # type: ignore[arg-type]
