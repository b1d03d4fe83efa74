"""The encoder against Hugging Face's, from the same weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertModel

from bertlab.api import batch as packed_batch
from bertlab.api.batch import PackedBatch, pack
from bertlab.encoders.bert import BertEncoder, sinusoidal_positions
from bertlab.errors import ConfigError

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def random_batch(lengths: list[int], vocab_size: int = 97, seed: int = 0) -> PackedBatch:
    # id 0 is left out: Hugging Face gives the padding row no gradient
    generator = torch.Generator().manual_seed(seed)
    ids, types = [], []
    for length in lengths:
        ids.append(torch.randint(1, vocab_size, (length,), generator=generator).tolist())
        border = int(torch.randint(0, length + 1, (1,), generator=generator))
        types.append([0] * border + [1] * (length - border))
    return pack(ids, types)


def pad(batch: PackedBatch, flat: torch.Tensor) -> torch.Tensor:
    padded = flat.new_zeros(len(batch) * batch.max_seqlen, *flat.shape[1:])
    padded[batch.padded_index] = flat
    return padded.view(len(batch), batch.max_seqlen, *flat.shape[1:])


def reference_pair(**changes: object) -> tuple[BertEncoder, BertModel]:
    """A bertlab encoder and Hugging Face's with the same weights, without dropout noise."""
    sizes = SMALL | changes
    torch.manual_seed(0)
    peer = BertModel(BertConfig(**sizes, hidden_act="gelu")).eval()
    ours = BertEncoder(**sizes).eval()
    for parameter in peer.parameters():  # away from the init, so that every term matters
        parameter.data += 0.1 * torch.randn_like(parameter)
    with torch.no_grad():
        ours.token_embedding.weight.copy_(peer.embeddings.word_embeddings.weight)
        ours.position_embedding.weight.copy_(peer.embeddings.position_embeddings.weight)
        ours.token_type_embedding.weight.copy_(peer.embeddings.token_type_embeddings.weight)
        ours.embedding_norm.load_state_dict(peer.embeddings.LayerNorm.state_dict())
        ours.pooler.load_state_dict(peer.pooler.dense.state_dict())
        for mine, theirs in zip(ours.layers, peer.encoder.layer, strict=True):
            attention = theirs.attention.self
            parts = (attention.query, attention.key, attention.value)
            mine.attention.qkv.weight.copy_(torch.cat([part.weight for part in parts]))
            mine.attention.qkv.bias.copy_(torch.cat([part.bias for part in parts]))
            mine.attention.output.load_state_dict(theirs.attention.output.dense.state_dict())
            mine.attention_norm.load_state_dict(theirs.attention.output.LayerNorm.state_dict())
            mine.intermediate.load_state_dict(theirs.intermediate.dense.state_dict())
            mine.output.load_state_dict(theirs.output.dense.state_dict())
            mine.output_norm.load_state_dict(theirs.output.LayerNorm.state_dict())
    return ours, peer


def run_peer(peer: BertModel, batch: PackedBatch) -> object:
    return peer(
        input_ids=pad(batch, batch.input_ids),
        token_type_ids=pad(batch, batch.token_type_ids),
        attention_mask=batch.attention_mask.long(),
        output_hidden_states=True,
    )


@pytest.mark.parametrize("lengths", [[7], [5, 5, 5], [64, 1, 13, 2, 40]])
def test_hidden_states_and_pooled_output_equal_hugging_face(lengths: list[int]) -> None:
    ours, peer = reference_pair()
    batch = random_batch(lengths)
    output = ours(batch, all_layers=True)
    expected = run_peer(peer, batch)
    assert output.all_layers is not None
    assert len(output.all_layers) == len(expected.hidden_states)
    for mine, theirs in zip(output.all_layers, expected.hidden_states, strict=True):
        assert torch.allclose(mine, theirs[batch.attention_mask], atol=1e-5, rtol=0)
    assert torch.allclose(output.pooled, expected.pooler_output, atol=1e-5, rtol=0)
    assert torch.equal(output.padded()[batch.attention_mask], output.tokens)
    assert not output.padded()[~batch.attention_mask].any()


def test_gradients_equal_hugging_face() -> None:
    ours, peer = reference_pair()
    batch = random_batch([19, 64, 3])
    weights = torch.randn(int(batch.lengths.sum()), 32)
    output = ours(batch)
    ((output.tokens * weights).sum() + output.pooled.square().sum()).backward()
    expected = run_peer(peer, batch)
    states = expected.last_hidden_state[batch.attention_mask]
    ((states * weights).sum() + expected.pooler_output.square().sum()).backward()
    attention = peer.encoder.layer[1].attention.self
    pairs = [
        (ours.token_embedding.weight, peer.embeddings.word_embeddings.weight.grad),
        (ours.position_embedding.weight, peer.embeddings.position_embeddings.weight.grad),
        (ours.token_type_embedding.weight, peer.embeddings.token_type_embeddings.weight.grad),
        (ours.pooler.weight, peer.pooler.dense.weight.grad),
        (ours.layers[0].output.weight, peer.encoder.layer[0].output.dense.weight.grad),
        (
            ours.layers[2].attention_norm.bias,
            peer.encoder.layer[2].attention.output.LayerNorm.bias.grad,
        ),
        (
            ours.layers[1].attention.qkv.weight,
            torch.cat(
                [part.weight.grad for part in (attention.query, attention.key, attention.value)]
            ),
        ),
    ]
    for parameter, gradient in pairs:
        assert parameter.grad is not None
        error = (parameter.grad - gradient).norm() / gradient.norm()
        assert error < 1e-4


@pytest.mark.parametrize("lengths", [[9, 9], [12, 5, 1]])
def test_causal_states_do_not_depend_on_what_follows(lengths: list[int]) -> None:
    torch.manual_seed(0)
    encoder = BertEncoder(**SMALL, causal=True).eval()
    batch = random_batch(lengths)
    changed = random_batch(lengths)
    changed.input_ids[lengths[0] - 1] = (changed.input_ids[lengths[0] - 1] + 1) % 97
    before, after = encoder(batch).tokens, encoder(changed).tokens
    last = lengths[0] - 1
    assert torch.allclose(before[:last], after[:last], atol=1e-6)
    assert not torch.allclose(before[last], after[last], atol=1e-3)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=6), st.booleans())
def test_a_sequence_does_not_see_its_neighbours(lengths: list[int], causal: bool) -> None:
    torch.manual_seed(0)
    encoder = BertEncoder(**SMALL, causal=causal).eval()
    batch = random_batch(lengths)
    together = encoder(batch).tokens.split(lengths)
    ids, types = batch.input_ids.split(lengths), batch.token_type_ids.split(lengths)
    for row, states in enumerate(together):
        alone = encoder(pack([ids[row].tolist()], [types[row].tolist()])).tokens
        assert torch.allclose(states, alone, atol=1e-5)


def test_attention_dropout_is_applied_in_training_only() -> None:
    torch.manual_seed(0)
    encoder = BertEncoder(**SMALL, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    batch = random_batch([10, 4])
    assert not torch.allclose(encoder(batch).tokens, encoder(batch).tokens)
    encoder.eval()
    assert torch.equal(encoder(batch).tokens, encoder(batch).tokens)


@pytest.mark.parametrize(
    ("preset", "expected"), [("base", 109_482_240), ("large", 335_141_888), ("tiny", 4_385_920)]
)
def test_parameter_counts_are_the_papers(preset: str, expected: int) -> None:
    with torch.device("meta"):
        encoder = BertEncoder(vocab_size=30522, preset=preset)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == expected


def test_initialisation_is_normal_with_002() -> None:
    torch.manual_seed(0)
    encoder = BertEncoder(vocab_size=5000, preset="tiny")
    for name, parameter in encoder.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        elif "norm" in name:
            assert bool((parameter == 1).all())
        else:
            assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.1)
            assert float(parameter.detach().mean()) == pytest.approx(0, abs=0.002)


def test_sinusoidal_positions_follow_the_formula() -> None:
    table = sinusoidal_positions(50, 16)
    for position in (0, 1, 49):
        for i in range(8):
            angle = torch.tensor(position / 10000 ** (2 * i / 16))
            assert float(table[position, 2 * i]) == pytest.approx(float(angle.sin()), abs=1e-5)
            assert float(table[position, 2 * i + 1]) == pytest.approx(float(angle.cos()), abs=1e-5)
    encoder = BertEncoder(**SMALL, position_embedding="sinusoidal")
    assert not any("position" in name for name, _ in encoder.named_parameters())
    assert encoder(random_batch([5])).tokens.shape == (5, 32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hidden_size": 30}, "do not divide"),
        ({"num_hidden_layers": -1}, "encoder.num_hidden_layers: found -1"),
        ({"preset": "huge"}, "found 'huge'"),
        (
            {"position_embedding": "absolute"},
            "found 'absolute', expected one of learned, sinusoidal",
        ),
    ],
)
def test_impossible_sizes_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BertEncoder(**(SMALL | arguments))


def test_bfloat16_autocast_stays_close() -> None:
    ours, _ = reference_pair()
    batch = random_batch([6, 3])
    exact = ours(batch).tokens
    with torch.autocast("cpu", torch.bfloat16):
        rounded = ours(batch).tokens
    assert torch.allclose(rounded.float(), exact, atol=0.15)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[64], [5, 5], [20, 30, 14], [70, 3], [1]])
def test_rows_that_fill_a_batch_change_nothing(lengths: list[int], causal: bool) -> None:
    torch.manual_seed(0)
    batch = pack([list(range(1, n + 1)) for n in lengths])
    encoder = BertEncoder(100, "tiny", causal=causal, hidden_dropout_prob=0.0)
    results = []
    for fill in (1, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed_batch, "FILL", fill)
            encoder.zero_grad()
            encoder.eval()
            output = encoder(batch, all_layers=True)
            assert output.all_layers is not None
            assert [len(layer) for layer in output.all_layers] == [sum(lengths)] * 3
            (output.tokens.square().sum() + output.pooled.sum()).backward()
            gradients = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
            results.append([output.tokens.detach(), *output.all_layers, *gradients])
    for one, other in zip(*results, strict=True):
        rounding = 1e-5 * float(
            other.detach().abs().max()
        )  # as kernels differ by the number of rows
        assert torch.allclose(one, other, rtol=1e-4, atol=rounding)
