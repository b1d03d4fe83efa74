"""The modern encoder against Hugging Face's ModernBERT, and each of its options against a loop."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import ModernBertConfig, ModernBertModel

from bertlab.api.batch import PackedBatch, pack
from bertlab.encoders.attention import packed_attention
from bertlab.encoders.layers import rows_read
from bertlab.errors import ConfigError
from bertlab.model.optimizer import split_by_weight_decay
from bertlab_modern.layer_depths import parameter_depths
from bertlab_modern.modern import ModernEncoder
from bertlab_modern.windowed import windowed_attention
from bertlab_studies.plan.flops import encoder_flops
from tests.encoders.test_bert import pad, random_batch

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}


def reference_pair(
    attention: str = "sdpa", window: int = 8, bias: bool = False, activation: str = "gelu"
) -> tuple[ModernEncoder, ModernBertModel]:
    """A bertlab encoder and Hugging Face's with the same random weights."""
    torch.manual_seed(0)
    config = ModernBertConfig(
        **SMALL,
        local_attention=window,
        pad_token_id=0,
        attention_bias=bias,
        mlp_bias=bias,
        norm_bias=bias,
        hidden_activation=activation,
        attn_implementation=attention,
    )
    peer = ModernBertModel(config).eval()
    for parameter in peer.parameters():  # away from the init, so that every term matters
        parameter.data += 0.1 * torch.randn_like(parameter)
    ours = ModernEncoder(
        **SMALL,
        local_window=window,
        rope_theta=160_000.0,
        bias=bias,
        feed_forward="geglu" if activation == "gelu" else "swiglu",
    ).eval()
    pairs = [
        (ours.token_embedding, peer.embeddings.tok_embeddings),
        (ours.embedding_norm, peer.embeddings.norm),
        (ours.final_norm, peer.final_norm),
    ]
    for mine, theirs in zip(ours.layers, peer.layers, strict=True):
        pairs += [
            (mine.attention_norm, theirs.attn_norm),
            (mine.attention.qkv, theirs.attn.Wqkv),
            (mine.attention.output, theirs.attn.Wo),
            (mine.feed_forward_norm, theirs.mlp_norm),
            (mine.intermediate, theirs.mlp.Wi),
            (mine.output, theirs.mlp.Wo),
        ]
    for one, other in pairs:
        one.load_state_dict(other.state_dict())
    return ours, peer


def run_peer(peer: ModernBertModel, batch: PackedBatch) -> Tensor:
    mask = batch.attention_mask.long()
    padded = pad(batch, batch.input_ids)
    return peer(input_ids=padded, attention_mask=mask).last_hidden_state[batch.attention_mask]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("window", [8, 64, 128])
@pytest.mark.parametrize(
    "lengths", [[7], [5, 5, 5], [200], [64, 1, 13, 200, 40], [70, 70], [300, 2, 33, 32, 1]]
)
def test_states_equal_hugging_face(attention: str, window: int, lengths: list[int]) -> None:
    ours, peer = reference_pair(attention, window)
    batch = random_batch(lengths)
    with torch.no_grad():
        found, expected = ours(batch).tokens, run_peer(peer, batch)
    assert torch.allclose(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("change", [{"bias": True}, {"activation": "silu"}])
def test_its_options_equal_hugging_face(change: dict[str, object]) -> None:
    ours, peer = reference_pair(**change)
    batch = random_batch([50, 3, 20])
    with torch.no_grad():
        assert torch.allclose(ours(batch).tokens, run_peer(peer, batch), atol=1e-5, rtol=0)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_states_that_are_read_and_gradients_equal_hugging_face(
    lengths: list[int], seed: int
) -> None:
    ours, peer = reference_pair()
    batch = random_batch(lengths, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    batch.tokens_read = (torch.rand(sum(lengths), generator=generator) < 0.2).nonzero()[:, 0]
    rows = rows_read(batch, lambda places, _: places[batch.cu_seqlens[:-1].long()])
    assert rows is not None
    weights = torch.randn(len(rows), 32, generator=generator)
    found, expected = ours(batch).tokens[rows], run_peer(peer, batch)[rows]
    assert torch.allclose(found, expected, atol=1e-5, rtol=0)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for mine, theirs in [
        (ours.token_embedding, peer.embeddings.tok_embeddings),
        (ours.layers[1].attention.qkv, peer.layers[1].attn.Wqkv),
        (ours.layers[3].attention.qkv, peer.layers[3].attn.Wqkv),
        (ours.layers[3].output, peer.layers[3].mlp.Wo),
        (ours.final_norm, peer.final_norm),
    ]:
        torch.testing.assert_close(mine.weight.grad, theirs.weight.grad, atol=1e-4, rtol=1e-4)


def attention_by_loop(
    qkv: Tensor, batch: PackedBatch, heads: int, window: int, causal: bool
) -> Tensor:
    rows = []
    for number, sequence in enumerate(qkv.split(batch.lengths.tolist())):
        is_causal = causal if batch.causal is None else bool(batch.causal[number])
        query, key, value = sequence.view(len(sequence), 3, heads, -1).unbind(1)
        for place in range(len(sequence)):
            last = place if is_causal else place + window
            near = slice(max(place - window, 0), last + 1)
            scores = (query[place] * key[near]).sum(-1) * query.shape[-1] ** -0.5  # (keys, A)
            rows.append((scores.softmax(0)[:, :, None] * value[near]).sum(0).flatten())
    return torch.stack(rows)


@pytest.mark.nightly
@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 130), min_size=1, max_size=4),
    window=st.integers(0, 40),
    causal=st.sampled_from([False, True, None]),
    fill=st.sampled_from([0, 3]),
    share=st.sampled_from([None, 0.1, 0.9]),
)
def test_a_window_is_that_of_a_loop(
    lengths: list[int], window: int, causal: bool | None, fill: int, share: float | None
) -> None:
    batch = random_batch(lengths)
    if causal is None:  # each sequence has a direction of its own
        batch.fields["causal"] = torch.tensor([number % 2 == 0 for number in range(len(lengths))])
    tokens = sum(lengths)
    torch.manual_seed(tokens)
    qkv = torch.randn(tokens + fill, 3 * 8, requires_grad=True)
    rows = None if share is None else (torch.rand(tokens) < share).nonzero()[:, 0]
    if rows is not None and not len(rows):
        rows = torch.tensor([tokens - 1])
    found = windowed_attention(qkv, batch, 2, 0.0, bool(causal), rows, window)
    found = found[:tokens] if rows is None else found
    expected = attention_by_loop(qkv[:tokens], batch, 2, window, bool(causal))
    expected = expected if rows is None else expected[rows]
    assert torch.allclose(found, expected, atol=1e-5)
    gradients = [torch.autograd.grad(each.sin().sum(), qkv)[0] for each in (found, expected)]
    assert torch.allclose(*gradients, atol=1e-5)


@pytest.mark.parametrize("lengths", [[130, 1], [20, 20]])
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_in_a_window_drops_weights_only(lengths: list[int], causal: bool) -> None:
    """With values of 1 the mean of the output is 1, and what is out of reach stays out."""
    torch.manual_seed(0)
    batch = random_batch(lengths)
    qkv = torch.cat([torch.randn(sum(lengths), 2 * 64), torch.ones(sum(lengths), 64)], 1)
    attended = windowed_attention(qkv, batch, 2, 0.3, causal, None, 5)
    assert attended.std() > 0
    assert abs(attended.mean() - 1) < 0.1


def test_short_sequences_are_attended_as_without_a_window() -> None:
    batch, qkv = random_batch([9, 5, 9]), torch.randn(23, 3 * 16)
    found = windowed_attention(qkv, batch, 2, 0.0, False, None, 8)
    expected = packed_attention(qkv, batch, 2, 0.0, False)
    assert torch.equal(found, expected)
    assert not torch.equal(found, windowed_attention(qkv, batch, 2, 0.0, False, None, 7))


def test_defaults_are_modernberts_sizes_and_berts_number_of_weights() -> None:
    with torch.device("meta"):
        base = ModernEncoder(50_368, "modernbert-base")
        peer = ModernBertModel(ModernBertConfig())
        tiny, plain = ModernEncoder(97, "tiny"), ModernEncoder(97, "tiny", feed_forward="plain")
    sizes = [sum(p.numel() for p in each.parameters()) for each in (base, peer)]
    assert sizes[0] - sum(p.numel() for p in base.pooler.parameters()) == sizes[1]
    assert base.max_position_embeddings == 8192
    weights = [sum(p.numel() for p in each.layers.parameters()) for each in (tiny, plain)]
    assert abs(weights[0] / weights[1] - 1) < 0.05


def test_each_sequence_is_read_in_its_own_direction() -> None:
    torch.manual_seed(0)
    both = ModernEncoder(**SMALL, local_window=8).eval()
    left = ModernEncoder(**SMALL, local_window=8, causal=True).eval()
    left.load_state_dict(both.state_dict())
    lengths = [40, 3, 22, 1, 17]
    batch = random_batch(lengths)
    batch.fields["causal"] = torch.tensor([True, False, False, True, True])
    expected = []
    for name in ("tokens", "pooled"):
        parts = [
            getattr((left if causal else both)(pack([ids.tolist()])), name)
            for ids, causal in zip(
                batch.input_ids.split(lengths), batch.fields["causal"], strict=True
            )
        ]
        expected.append(torch.cat(parts))
    for encoder in (both, left):
        output = encoder(batch)
        for found, wanted in zip((output.tokens, output.pooled), expected, strict=True):
            torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


ABLATIONS = [
    {"position_embedding": "learned"},
    {"norm": "rms"},
    {"norm_position": "post"},
    {"feed_forward": "swiglu"},
    {"feed_forward": "plain"},
    {"bias": True},
    {"attention_bias": True},
    {"feed_forward_bias": True},
    {"norm_bias": True},
    {"type_vocab_size": 2},
    {"type_vocab_size": 1},
    {"global_every": 1},
    {"local_window": 16},
    {"rope_theta": 500.0},
    {"local_rope_theta": 500.0},
    {"causal": True},
]


@pytest.mark.parametrize("change", ABLATIONS, ids=str)
def test_each_option_alone_changes_the_states(change: dict[str, object]) -> None:
    batch = random_batch([40, 3])
    found = []
    for options in ({}, change):
        torch.manual_seed(0)
        encoder = ModernEncoder(**SMALL, local_window=8) if not options else None
        encoder = encoder or ModernEncoder(**{**SMALL, "local_window": 8, **options})
        torch.manual_seed(1)
        for parameter in encoder.parameters():
            parameter.data += 0.1 * torch.ones_like(parameter)
        found.append(encoder.eval()(batch).tokens)
        assert found[-1].isfinite().all()
    assert not torch.allclose(*found)


def test_of_one_segment_no_tokens_segment_matters() -> None:
    batch = random_batch([40, 3])
    assert batch.token_type_ids.any()
    encoder = ModernEncoder(**SMALL, type_vocab_size=1).eval()
    expected = encoder(replace(batch, token_type_ids=torch.zeros_like(batch.token_type_ids)))
    assert torch.equal(encoder(batch).tokens, expected.tokens)


def test_scaled_weights_are_truncated_and_smaller_where_sub_layers_end() -> None:
    torch.manual_seed(0)
    encoder = ModernEncoder(97, "mini", initializer_range=0.02)
    layer = encoder.layers[1]
    assert isinstance(layer.intermediate, nn.Linear)
    inner, outer = layer.intermediate.weight, layer.output.weight
    assert 0.016 < inner.std() < 0.02
    assert abs(inner.std() / outer.std() - 8**0.5) < 0.05  # 4 layers
    assert inner.abs().max() <= 0.04
    normal = ModernEncoder(97, "mini", initialization="normal").layers[1].output.weight
    assert 0.019 < normal.std() < 0.021
    assert normal.abs().max() > 0.06


def test_norms_and_biases_do_not_decay() -> None:
    encoder = ModernEncoder(**SMALL, norm="rms", bias=True)
    _, plain = split_by_weight_decay(encoder)
    expected = {n for n, p in encoder.named_parameters() if p.dim() == 1}
    assert {
        n for n, p in encoder.named_parameters() if any(p is each for each in plain)
    } == expected


def test_depths_of_its_parameters_are_known() -> None:
    encoder = ModernEncoder(**SMALL)
    depths = parameter_depths(encoder, "layer_decay")
    found = {name: depths[p] for name, p in encoder.named_parameters()}
    assert found["token_embedding.weight"] == found["embedding_norm.weight"] == 5
    assert [found[f"layers.{n}.output.weight"] for n in range(4)] == [4, 3, 2, 1]
    assert found["final_norm.weight"] == found["pooler.dense.weight"] == 0


@pytest.mark.slow
@given(length=st.integers(1, 60), window=st.integers(1, 40), every=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_operations_are_those_of_the_pairs_that_are_seen(
    length: int, window: int, every: int
) -> None:
    with torch.device("meta"):
        encoder = ModernEncoder(**SMALL, local_window=window, global_every=every)
    pairs = 0
    for number in range(4):
        side = window // 2 if number % every else length
        pairs += sum(abs(i - j) <= side for i in range(length) for j in range(length))
    assert encoder.tokens_attended(length) == pytest.approx(pairs / length)
    weights = 4 * (4 * 32 * 32 + 3 * 32 * 48)  # qkv and output; gate, value and output
    assert encoder_flops(encoder, length) == pytest.approx(2 * weights + 4 * 32 * pairs / length)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_attention_heads": 5}, "do not divide"),
        ({"num_attention_heads": 32}, "even size"),
        ({"rope_theta": 0.0}, "model.encoder.rope_theta: found 0.0, expected above 0"),
        ({"global_every": 0}, "model.encoder.global_every"),
        ({"local_window": 0}, "model.encoder.local_window"),
        ({"preset": "huge"}, "expected one of"),
        ({"norm": "RMS"}, "encoder.norm: found 'RMS', expected one of layer, rms; did you mean"),
        ({"norm_position": "PRE"}, "model.encoder.norm_position: found 'PRE', expected one of pre"),
        ({"feed_forward": "SwiGLU"}, "did you mean 'swiglu'"),
        ({"position_embedding": "absolute"}, "model.encoder.position_embedding: found 'absolute'"),
        ({"initialization": "xavier"}, "model.encoder.initialization: found 'xavier'"),
    ],
)
def test_arguments_out_of_range_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModernEncoder(**(SMALL | change))
