"""Dropout on a CPU, and attention with it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab.api.batch import PackedBatch, pack
from bertlab.encoders.attention import packed_attention
from bertlab.encoders.layers import Dropout, dropout, hash_dropout


def batch_of(lengths: list[int]) -> PackedBatch:
    return pack([[0] * length for length in lengths])


@pytest.mark.slow
@settings(deadline=None)
@given(
    shape=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    probability=st.floats(1e-6, 1 - 1e-6),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_elements_are_dropped_or_scaled(
    shape: list[int], probability: float, dtype: torch.dtype
) -> None:
    dropped = dropout(torch.ones(shape, dtype=dtype), probability)
    assert dropped.shape == torch.Size(shape)
    assert dropped.dtype == dtype
    scale = 1 / (1 - min(max(round(probability * 65536), 1), 65535) / 65536)
    kept = dropped[dropped != 0].double()
    assert torch.allclose(kept, torch.full_like(kept, scale), rtol=1e-2)


@pytest.mark.parametrize("probability", [0.05, 0.1, 0.5])
def test_share_of_zeros_is_the_probability(probability: float) -> None:
    torch.manual_seed(0)
    count = 4_000_000
    dropped = dropout(torch.ones(count), probability)
    deviation = math.sqrt(probability * (1 - probability) / count)
    assert abs(float((dropped == 0).double().mean()) - probability) < 4 * deviation
    assert float(dropped.double().mean()) == pytest.approx(1, abs=4 * deviation / (1 - probability))
    neighbours = (dropped[1:] == 0) & (dropped[:-1] == 0)  # of one random word, three times in four
    assert float(neighbours.double().mean()) == pytest.approx(probability**2, abs=4 * deviation)


def test_torchs_generator_decides() -> None:
    values = torch.ones(1000)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first, second = dropout(values, 0.3), dropout(values, 0.3)
    torch.set_rng_state(state)
    assert torch.equal(dropout(values, 0.3), first)
    assert torch.equal(dropout(values, 0.3), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_drops_the_same_and_scales_by_the_rounded_scale(dtype: torch.dtype) -> None:
    values = torch.randn(1003)
    torch.manual_seed(3)
    full = dropout(values, 0.1)
    torch.manual_seed(3)
    half = dropout(values.to(dtype), 0.1)
    assert torch.equal(half == 0, full == 0)
    kept = full != 0
    scale = torch.tensor(65536 / (65536 - 6554), dtype=dtype)
    assert torch.equal(half[kept], values[kept].to(dtype) * scale)


def test_gradient_goes_where_the_value_went() -> None:
    values = torch.randn(50, 7, requires_grad=True)
    dropped = dropout(values, 0.4)
    dropped.sum().backward()
    assert values.grad is not None
    assert torch.allclose(values.grad * values, dropped)


def test_evaluation_and_the_borders() -> None:
    values = torch.randn(8)
    assert torch.equal(Dropout(0.5).eval()(values), values)
    assert torch.equal(Dropout(0.0)(values), values)
    assert torch.equal(Dropout(1.0)(values), torch.zeros(8))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[5, 5, 5], [7, 2, 4]])
def test_attention_with_next_to_no_dropout_is_attention_without(
    lengths: list[int], causal: bool
) -> None:
    torch.manual_seed(0)
    batch = batch_of(lengths)
    results = []
    qkv = torch.randn(sum(lengths), 3 * 8)
    for probability in (0.0, 1e-9):  # rounded to 2^-16: nothing is dropped by this seed
        leaf = qkv.clone().requires_grad_()
        attended = packed_attention(leaf, batch, 2, probability, causal)
        (attended * torch.arange(8)).sum().backward()
        results.append((attended.detach(), leaf.grad))
    for one, other in zip(*results, strict=True):
        assert one is not None
        assert other is not None
        assert torch.allclose(one, other, atol=1e-3)


def test_attention_drops_weights_not_outputs() -> None:
    torch.manual_seed(0)
    batch = batch_of([64] * 50)
    qkv = torch.zeros(64 * 50, 3 * 4)
    qkv[:, 8:] = 1  # equal weights on values of 1: the output is the share that is kept, scaled
    attended = packed_attention(qkv, batch, 1, 0.25, causal=False)
    kept = attended[:, 0] * 64 * 0.75
    assert torch.allclose(kept, kept.round(), atol=1e-3)
    assert float(kept.mean()) == pytest.approx(48, abs=0.5)
    assert float(kept.std()) == pytest.approx(math.sqrt(64 * 0.25 * 0.75), abs=0.3)


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_a_gpus_hashes_drop_evenly_and_each_on_its_own(probability: float) -> None:
    torch.manual_seed(0)
    shape, deviation = (2048, 768), (probability * (1 - probability)) ** 0.5
    first, second = (hash_dropout(torch.ones(shape), probability) for _ in range(2))
    assert first.unique().tolist() == pytest.approx([0, 1 / (1 - probability)])
    scores = [((each == 0).double() - probability) / deviation for each in (first, second)]
    count = first.numel() ** 0.5
    for score in scores:
        assert abs(score.mean()) * count < 4
        for along, length in enumerate(shape):  # no row and no column has more than by chance
            assert 0.8 < (score.mean(along) * length**0.5).var() < 1.25
        for shift in ((0, 1), (0, 2), (1, 1), (5, 3), (64, 0)):
            assert abs((score * score.roll(shift, (0, 1))).mean()) < 0.005
    assert abs((scores[0] * scores[1]).mean()) < 0.005


def test_a_gpus_hashes_follow_the_generator_and_let_the_gradient_through() -> None:
    values = torch.full((30, 40), 2.0, requires_grad=True)
    torch.manual_seed(3)
    found = hash_dropout(values, 0.25)
    found.sum().backward()
    torch.manual_seed(3)
    assert torch.equal(hash_dropout(torch.full((30, 40), 2.0), 0.25), found)
    assert values.grad is not None
    torch.testing.assert_close(values.grad * 2, found.detach())
