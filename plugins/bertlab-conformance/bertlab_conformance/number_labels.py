"""Asks whether labels that are numbers are numbers to predict."""

import math
import re
from collections.abc import Iterable

from lightning.pytorch import Callback, Trainer

from bertlab.api import TaskData
from bertlab.extend import warn

_MANY = 5  # classes that are numbers, from which on a number may be meant


class AskForRegression(Callback):
    """Asks whether labels that are numbers are numbers to predict."""

    def prepare(self, trainer: Trainer, data: TaskData) -> None:
        """Warn, before training, of many classes that are numbers."""
        if trainer.is_global_zero and data.labels is not None and are_numbers(data.labels.names):
            names = data.labels.names
            warn(
                f"the {len(names)} labels are numbers, from {names[0]} to {names[-1]}, and each is "
                "taken as a class; if a number is to be predicted: --model.head.regression true"
            )


def are_numbers(names: Iterable[str]) -> bool:
    """Whether classes are so many numbers, or such, that a number seems to be meant."""
    found = list(names)
    if not all(re.fullmatch(r"[+-]?\d+([.,]\d+)?", each) for each in found):
        return False
    values = [float(each.replace(",", ".")) for each in found]  # 0,5 has a decimal comma
    return len(found) >= _MANY or any(not math.isclose(each, round(each)) for each in values)
