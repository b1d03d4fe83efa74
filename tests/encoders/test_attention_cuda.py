"""The variable-length flash kernel against padded attention; needs a GPU."""

import pytest
import torch

from bertlab.encoders.attention import _padded_attention, packed_attention
from tests.encoders.test_bert import random_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[64, 64], [5, 128, 1, 77]])
def test_varlen_equals_padded_attention(lengths: list[int], causal: bool) -> None:
    torch.manual_seed(0)
    device = torch.device("cuda")
    batch = random_batch(lengths).to(device)
    qkv = torch.randn(sum(lengths), 3 * 256, device=device, dtype=torch.bfloat16)
    qkv.requires_grad_()
    weights = torch.randn(sum(lengths), 256, device=device, dtype=torch.bfloat16)
    varlen = packed_attention(qkv, batch, num_heads=4, dropout=0.0, causal=causal)
    (varlen * weights).sum().backward()
    gradient, qkv.grad = qkv.grad, None
    exact = qkv.detach().float().requires_grad_()
    expected = _padded_attention(exact, batch, num_heads=4, dropout=0.0, causal=causal)
    (expected * weights.float()).sum().backward()
    assert gradient is not None
    assert exact.grad is not None
    assert torch.allclose(varlen.float(), expected, atol=2e-2)
    assert (gradient.float() - exact.grad).norm() / exact.grad.norm() < 1e-2
