"""Cross-entropy by rows against torch's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from bertlab.objectives.cross_entropy import SummedCrossEntropy


@pytest.mark.slow
@given(st.integers(1, 70), st.integers(0, 5), st.integers(2, 40), st.floats(-80, 80), st.booleans())
def test_the_loss_is_torchs(
    rows: int, spare: int, classes: int, shift: float, in_bf16: bool
) -> None:
    torch.manual_seed(rows)
    dtype = torch.bfloat16 if in_bf16 else torch.float32
    logits = (torch.randn(rows + spare, classes) * 5 + shift).to(dtype)
    labels = torch.randint(classes, (rows,))
    expected = F.cross_entropy(logits[:rows].float(), labels, reduction="sum")
    with torch.no_grad():
        found = SummedCrossEntropy()(logits, labels)
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_scores_out_of_range_do_not_overflow_and_stay_as_they_were() -> None:
    logits = torch.tensor([[3e4, -3e4, 0.0], [-torch.inf, 1.0, 2.0]], requires_grad=True)
    before = logits.detach().clone()
    labels = torch.tensor([1, 2])
    with torch.no_grad():
        by_rows = SummedCrossEntropy()(logits, labels)
    loss = SummedCrossEntropy()(logits, labels)
    assert by_rows.item() == pytest.approx(6e4 + 0.3133, rel=1e-6)
    assert loss.item() == pytest.approx(6e4 + 0.3133, rel=1e-6)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert torch.equal(logits.detach(), before)


def test_without_a_gradient_there_is_none() -> None:
    with torch.no_grad():
        loss = SummedCrossEntropy()(torch.zeros(2, 4), torch.tensor([0, 3]))
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(2.7726, rel=1e-4)
