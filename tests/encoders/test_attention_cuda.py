"""The flash kernel for packed batches against padded attention; needs a GPU."""

import pytest
import torch

from bertlab.encoders.attention import attention_by_padding, packed_attention
from tests.encoders.test_bert import random_batch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[64, 64], [5, 128, 1, 77]])
def test_flash_equals_padded_attention(lengths: list[int], causal: bool) -> None:
    torch.manual_seed(0)
    device = torch.device("cuda")
    batch = random_batch(lengths).to(device)
    qkv = torch.randn(sum(lengths), 3 * 256, device=device, dtype=torch.bfloat16)
    qkv.requires_grad_()
    weights = torch.randn(sum(lengths), 256, device=device, dtype=torch.bfloat16)
    packed = packed_attention(qkv, batch, 4, 0.0, causal)
    (packed * weights).sum().backward()
    gradient, qkv.grad = qkv.grad, None
    exact = qkv.detach().float().requires_grad_()
    expected = attention_by_padding(exact, batch, 4, 0.0, causal)
    (expected * weights.float()).sum().backward()
    assert gradient is not None
    assert exact.grad is not None
    assert torch.allclose(packed.float(), expected, atol=2e-2)
    assert (gradient.float() - exact.grad).norm() / exact.grad.norm() < 1e-2


def test_dropped_weights_keep_the_mean_and_follow_the_generator() -> None:
    device = torch.device("cuda")
    batch = random_batch([128] * 16).to(device)
    qkv = torch.randn(2048, 3 * 256, device=device, dtype=torch.bfloat16)
    qkv[:, 512:] = 1  # each output is the sum of its weights
    outputs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        leaf = qkv.clone().requires_grad_()
        attended = packed_attention(leaf, batch, num_heads=4, dropout=0.25, causal=False)
        attended.float().sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
        # d(sum)/d(value) is the sum of a column of the dropped weights, over all of its queries
        assert leaf.grad[:, 512:].float().mean().item() == pytest.approx(1, abs=0.02)
        outputs.append(attended.detach().float())
    assert outputs[0].mean().item() == pytest.approx(1, abs=0.01)
    assert outputs[0].std() > 0.02
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
