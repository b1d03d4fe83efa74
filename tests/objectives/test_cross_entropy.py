"""Scores and cross-entropy in one step against torch's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from bertlab.objectives import cross_entropy as summed_cross_entropy
from bertlab.objectives.cross_entropy import linear_cross_entropy

WIDTH, CLASSES = 12, 40


def made_up(rows: int, spare: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(rows)
    hidden = (torch.randn(rows + spare, WIDTH) * scale).requires_grad_()
    weight, bias = torch.randn(CLASSES, WIDTH).requires_grad_(), torch.randn(CLASSES)
    return hidden, weight, bias.requires_grad_(), torch.randint(CLASSES, (rows,))


def reference(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    logits = F.linear(hidden, weight, bias)[: len(labels)]
    return F.cross_entropy(logits.float(), labels, reduction="sum")


@given(
    rows=st.integers(1, 70),
    spare=st.integers(0, 5),
    at_once=st.integers(1, 80),
    scale=st.floats(0, 9),
)
def test_loss_and_gradients_are_torchs(rows: int, spare: int, at_once: int, scale: float) -> None:
    *parameters, labels = made_up(rows, spare, scale)
    expected = reference(*parameters, labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summed_cross_entropy, "_SCORES", at_once * CLASSES)
        found = linear_cross_entropy(*parameters, labels)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    theirs = torch.autograd.grad(expected / 3, parameters)
    ours = torch.autograd.grad(found / 3, parameters, retain_graph=True)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    for one, again in zip(ours, torch.autograd.grad(found / 3, parameters), strict=True):
        assert torch.equal(one, again)


def test_under_autocast_only_products_are_rounded() -> None:
    *parameters, labels = made_up(300, 4)
    exact = torch.autograd.grad(reference(*parameters, labels) / 300, parameters)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(*parameters, labels) / 300
    assert loss.dtype == torch.float32
    for right, found in zip(exact, torch.autograd.grad(loss, parameters), strict=True):
        assert found.dtype == torch.float32
        assert (found - right).norm() < 1e-2 * right.norm()
        assert (found * right).sum() / right.square().sum() == pytest.approx(1, abs=1e-3)


def test_weights_in_bf16_have_gradients_in_bf16() -> None:
    *parameters, labels = made_up(30, 0)
    halves = [each.detach().bfloat16().requires_grad_() for each in parameters]
    linear_cross_entropy(*halves, labels).backward()
    reference(*parameters, labels).backward()
    for half, whole in zip(halves, parameters, strict=True):
        assert half.grad is not None
        assert whole.grad is not None
        assert half.grad.dtype == torch.bfloat16
        assert (half.grad.float() - whole.grad).norm() < 2e-2 * whole.grad.norm()


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_has_no_gradient(frozen: int) -> None:
    *parameters, labels = made_up(5, 0)
    parameters[frozen].requires_grad_(False)
    linear_cross_entropy(*parameters, labels).backward()
    assert [each.grad is None for each in parameters] == [each == frozen for each in range(3)]


def test_scores_out_of_range_do_not_overflow_and_hidden_states_stay_as_they_were() -> None:
    hidden = torch.tensor([[3e4, -3e4, 0.0], [-9.0, 1.0, 2.0]], requires_grad=True)
    weight, bias = torch.eye(3, requires_grad=True), torch.tensor([-torch.inf, 0.0, 0.0])
    bias.requires_grad_()
    before = [each.detach().clone() for each in (hidden, weight, bias)]
    loss = linear_cross_entropy(hidden, weight, bias, torch.tensor([1, 2]))
    assert loss.item() == pytest.approx(3e4 + 0.3133, rel=1e-6)
    loss.backward()
    for each, was in zip((hidden, weight, bias), before, strict=True):
        assert each.grad is not None
        assert each.grad.isfinite().all()
        assert torch.equal(each.detach(), was)
