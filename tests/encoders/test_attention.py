"""From packed tokens to padded heads and back: the same as padding and permuting, gradients too."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertlab.api.batch import pack
from bertlab.encoders.attention import (
    attention_by_padding,
    flash_attention,
    from_heads,
    packed_attention,
    to_heads,
)

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(LENGTHS, st.integers(1, 3), st.integers(1, 4), st.integers(0, 5))
def test_layouts_are_those_of_padding(
    lengths: list[int], heads: int, head_size: int, fill: int
) -> None:
    batch = pack([[1] * length for length in lengths])
    tokens, longest = sum(lengths), max(lengths)
    torch.manual_seed(tokens)
    qkv = torch.randn(tokens + fill, 3 * heads * head_size, requires_grad=True)
    padded = batch.pad(qkv[:tokens]).view(len(lengths), longest, 3, heads, head_size)
    expected = padded.permute(2, 0, 3, 1, 4)
    found = torch.stack(to_heads(qkv, batch, heads))
    is_token = batch.attention_mask[None, :, None, :, None]
    assert torch.equal(found.masked_fill(~is_token, 0), expected)

    weights = torch.randn_like(expected).masked_fill(~is_token, 0)
    assert torch.equal(*(gradient((each * weights).sum(), qkv) for each in (found, expected)))

    plain = expected[0].transpose(1, 2).reshape(len(lengths) * longest, -1)[batch.padded_index]
    packed = from_heads(expected[0], batch, tokens + fill)
    assert torch.equal(packed[:tokens], plain)
    assert packed.isfinite().all()
    shares = torch.randn_like(plain)
    sums = ((each[:tokens] * shares).sum() for each in (packed, plain))
    assert torch.equal(*(gradient(each, qkv) for each in sums))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("window", [None, 2])
def test_the_flash_kernel_is_called_as_its_schema_has_it(
    monkeypatch: pytest.MonkeyPatch, causal: bool, dropout: float, window: int | None
) -> None:
    """A GPU's kernel is not at hand on a CPU; what it is given is."""
    operator = torch.ops.aten._flash_attention_forward
    names = [each.name for each in operator.default._schema.arguments]
    batch = pack([[1] * length for length in (3, 7, 1)])
    given: dict[str, object] = {}

    def reference(*arguments: object, **sides: int) -> list[Tensor]:
        given.update(zip(names, arguments, strict=False))
        assert set(sides) <= set(names)
        given.update(sides)
        query, key, value = (given[name] for name in ("query", "key", "value"))
        assert isinstance(query, Tensor)
        assert isinstance(key, Tensor)
        assert isinstance(value, Tensor)
        qkv = torch.stack([query, key, value], 1).flatten(1)
        return [attention_by_padding(qkv, batch, 2, 0.0, causal).view(query.shape)]

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", reference)
    qkv = torch.randn(11, 3 * 16)
    found = flash_attention(qkv, batch, 2, dropout, causal, window)
    assert torch.equal(found, attention_by_padding(qkv, batch, 2, 0.0, causal))
    assert given["cum_seq_q"] is given["cum_seq_k"] is batch.cu_seqlens
    assert given["max_q"] == given["max_k"] == 7
    assert given["dropout_p"] == dropout
    assert given["is_causal"] == causal
    assert given["return_debug_mask"] is False
    assert given.get("window_size_left") == window
    right = 0 if causal else window
    assert given.get("window_size_right") == (None if window is None else right)


@pytest.mark.parametrize("lengths", [[3, 7, 1, 5], [4, 4, 4, 4]])
@pytest.mark.parametrize("way", ["flash", "padding", "rows"])
def test_each_sequence_is_read_in_its_own_direction(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], way: str
) -> None:
    """Values and gradients are those of each sequence alone, causal or not."""

    def kernel(*given: object, **_: int) -> list[Tensor]:
        query, key, value, causal = (given[place] for place in (0, 1, 2, 8))
        assert isinstance(query, Tensor)
        qkv = torch.stack([query, key, value], 1).flatten(1)  # type: ignore[list-item]
        plain = pack([[1] * length for length in lengths])
        return [attention_by_padding(qkv, plain, 2, 0.0, bool(causal)).view(query.shape)]

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", kernel)
    torch.manual_seed(0)
    causal = torch.tensor([True, False, True, False])
    batch = pack([[1] * length for length in lengths])
    batch.fields["causal"] = causal
    qkv = torch.randn(16, 3 * 16, requires_grad=True)
    alone = [
        attention_by_padding(part, pack([[1] * len(part)]), 2, 0.0, bool(left))
        for part, left in zip(qkv.split(lengths), causal, strict=True)
    ]
    expected, rows = torch.cat(alone), torch.tensor([0, 4, 12])
    if way == "flash":
        found = flash_attention(qkv, batch, 2, 0.0, causal=False)
    elif way == "padding":
        found = packed_attention(qkv, batch, 2, 0.0, causal=True)
    else:
        found = packed_attention(qkv, batch, 2, 0.0, causal=True, rows=rows)
        expected = expected[rows]
    weights = torch.randn_like(expected)
    assert torch.allclose(found, expected, atol=1e-6)
    one, other = (gradient((each * weights).sum(), qkv) for each in (found, expected))
    assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_halves_are_attended_by_products_and_come_out_as_in_fp32(
    dtype: torch.dtype, causal: bool
) -> None:
    torch.manual_seed(0)
    batch = pack([[1] * length for length in (5, 9, 2)])
    qkv = torch.randn(16, 3 * 32).to(dtype)
    weights = torch.randn(16, 32)
    results = []
    for kind in (dtype, torch.float32):
        leaf = qkv.detach().to(kind).requires_grad_()
        attended = attention_by_padding(leaf, batch, 2, 0.0, causal)
        found = gradient((attended.float() * weights).sum(), leaf)
        results.append((attended.detach().float(), found))
    tolerance = 1e-6 if dtype == torch.float32 else 3e-2
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=tolerance * float(other.abs().max()))


def gradient(scalar: Tensor, leaf: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(scalar, leaf, retain_graph=True)
    return found.float()
