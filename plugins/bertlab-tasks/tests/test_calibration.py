"""The calibration error against torchmetrics, on other cuts of the same predictions."""

import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from bertlab import ConfigError, classification_loss
from bertlab.testing import conformance
from bertlab_tasks.calibration import CalibrationError

SCORES = torch.randn(60, 4, generator=torch.Generator().manual_seed(1)) * 3
TRUTH = torch.randint(0, 4, (60,), generator=torch.Generator().manual_seed(2))
PARTS = (slice(7), slice(7, 8), slice(8, 60))

test_conformance = conformance(
    CalibrationError,
    rows=[
        {"preds": SCORES[part].argmax(-1), "target": TRUTH[part], "logits": SCORES[part]}
        for part in PARTS
    ],
)


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_it_is_that_of_torchmetrics(bins: int) -> None:
    metric = CalibrationError(bins)
    for part in PARTS:
        classification_loss(SCORES[part], TRUTH[part]).update(metric)
    expected = multiclass_calibration_error(SCORES.softmax(-1), TRUTH, 4, n_bins=bins)
    assert metric.compute().item() == pytest.approx(expected.item(), abs=1e-6)


def test_a_sure_model_that_errs_by_half_has_a_half() -> None:
    metric = CalibrationError()
    sure = torch.tensor([[1000.0, 0.0]] * 4)
    metric.update(sure.argmax(-1), torch.tensor([0, 1, 0, 1]), sure)
    assert metric.compute().item() == 0.5


def test_no_bins_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"calibration_error\.bins: found 0"):
        CalibrationError(0)
