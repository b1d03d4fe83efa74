"""Softmax regression: the linear probe, fitted by L-BFGS without random numbers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class LinearProbe:
    """A linear classifier of features.

    Attributes:
        weight: ``(D + 1, C)``, the last row of which is the bias.
        converged: the solver ended before its last iteration.
    """

    weight: Tensor
    converged: bool

    def predict(self, features: Tensor) -> Tensor:
        """Return the ``(N,)`` int64 classes of ``(N, D)`` features."""
        return (features @ self.weight[:-1] + self.weight[-1]).argmax(-1)


def fit_probe(
    features: Tensor,
    labels: Tensor,
    classes: int,
    l2: float,
    iterations: int = 500,
    tolerance: float = 1e-4,
) -> LinearProbe:
    """Minimise the summed cross-entropy plus ``l2 / 2`` times the squared weights.

    The bias is not penalised, so the minimum is that of scikit-learn's ``LogisticRegression`` with
    ``C = 1 / l2``. The gradient is written out, since evaluations are called without autograd.

    Args:
        features: ``(N, D)`` float.
        labels: ``(N,)`` int64 classes in 0 … C - 1.
        classes: C.
        l2: weight of the penalty.
        iterations: at most.
        tolerance: largest entry of the gradient, of the mean loss, at which the solver ends.
    """
    count, width = features.shape
    weight = features.new_zeros(width + 1, classes)
    truth = F.one_hot(labels, classes).to(features.dtype)
    solver = torch.optim.LBFGS(
        [weight],
        max_iter=iterations,
        max_eval=2 * iterations,
        tolerance_grad=tolerance,
        tolerance_change=1e-9,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        with torch.no_grad():
            log_probs = (features @ weight[:-1] + weight[-1]).log_softmax(-1)
            wrong = (log_probs.exp() - truth) / count
            slope = l2 / count * weight[:-1]
            weight.grad = torch.cat([features.T @ wrong + slope, wrong.sum(0, keepdim=True)])
            penalty = l2 / (2 * count) * weight[:-1].square().sum()
            return penalty - (log_probs * truth).sum() / count

    solver.step(loss)  # type: ignore[no-untyped-call]
    return LinearProbe(weight, solver.state[weight]["n_iter"] < iterations)
