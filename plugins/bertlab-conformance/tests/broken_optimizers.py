"""Optimisers and schedules with one bug each. ``expects``: the check that finds it, and words."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.optim import AdamW, Optimizer

from bertlab.api.optimizer import OptimizerRecipe, ParameterGroup, Progress, Schedule
from bertlab_modern.lion import LionOptimizer
from broken_others import Expects
from good_plugins import GoodAverage, GoodMonitor, GoodOptimizer, GoodSchedule


class ForgetsBiases(GoodOptimizer):
    """Trains what decays only."""

    expects: Expects = ("trains_every_parameter", "encoder.1.bias")

    def build(self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool) -> Any:
        return super().build(groups[:1], learning_rate, fused)


class NoOptimizer(GoodOptimizer):
    """Returns groups."""

    expects: Expects = ("trains_every_parameter", "returns a list")

    def build(self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool) -> Any:
        return list(groups)


class OneRate(GoodOptimizer):
    """Gives all groups the peak."""

    expects: Expects = ("groups_have_their_rates", "a group's rate is 0.005")

    def build(self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool) -> Any:
        same = [replace(group, learning_rate=learning_rate) for group in groups]
        return super().build(same, learning_rate, fused)


class DecaysAll(GoodOptimizer):
    """Lets biases decay."""

    expects: Expects = ("only_matrices_decay", "weight_decay is 0")

    def build(self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool) -> Any:
        decay = max(group.weight_decay for group in groups)
        same = [replace(group, weight_decay=decay) for group in groups]
        return super().build(same, learning_rate, fused)


class NeverDecays(GoodOptimizer):
    """Does not read weight decay, and does not say so."""

    expects: Expects = ("only_matrices_decay", "does not shrink")

    def build(self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool) -> Any:
        none = [replace(group, weight_decay=0.0) for group in groups]
        return super().build(none, learning_rate, fused)


class Lion(LionOptimizer):
    """What some of the bugs are in."""

    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, lr)
        self.rate = lr


class OwnRate(Lion):
    """Steps at the rate that it was made with."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] = self.rate
        loss = super().step(closure)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        return loss


class Up(Lion):
    """Climbs."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = None if closure is None else closure_loss(closure)
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.grad.neg_()
        super().step()
        return loss


class NoClosure(Lion):
    """Never computes gradients."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        del closure
        return super().step()


class Drifts(Lion):
    """Weights shrink at every step, with a gradient or without."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = super().step(closure)
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is None:
                    each.mul_(1 - group["lr"])
        return loss


class Draws(Lion):
    """Adds noise of the global generator."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = super().step(closure)
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None and bool(each.grad.any()):
                    each.add_(torch.randn_like(each), alpha=group["lr"])
        return loss


class Hides(Lion):
    """Counts its steps where no checkpoint looks."""

    count = 0

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        self.count += 1
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] *= 1 / self.count
        loss = super().step(closure)
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate
        return loss


def closure_loss(closure: Any) -> Any:
    with torch.enable_grad():
        return closure()


class _Of(OptimizerRecipe):
    """Builds an optimiser of a class."""

    made: type[Optimizer]

    def build(self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool) -> Any:
        del fused
        return self.made([group.settings() for group in groups], learning_rate)  # type: ignore[arg-type]


class IgnoresSchedules(_Of):
    """Steps at the rate that it was made with."""

    expects: Expects = ("obeys_the_schedule", "at a learning rate of 0")
    made = OwnRate


class OwnRateWithModes(OwnRate):
    """Could have an average, and has none."""

    def train(self) -> None:
        pass

    def eval(self) -> None:
        pass


class IgnoresSchedulesInBothModes(_Of):
    """Steps at the rate that it was made with, where an average might go on."""

    expects: Expects = ("obeys_the_schedule", "at a learning rate of 0")
    made = OwnRateWithModes


class ForgetsModes(GoodAverage):
    """Has both modes, and nothing that calls them."""

    expects: Expects = ("modes_are_called", "callbacks() is empty")

    def callbacks(self) -> Sequence[Any]:
        return []


class Climbs(_Of):
    """Goes up."""

    expects: Expects = ("lowers_a_loss", "the loss goes from")
    made = Up


class IgnoresClosures(_Of):
    """Never computes gradients."""

    expects: Expects = ("takes_a_closure", "called 0 times")
    made = NoClosure


class MovesWithoutGradients(_Of):
    """Moves all."""

    expects: Expects = ("passes_over_missing_gradients", "without a gradient, these move")
    made = Drifts


class Noisy(_Of):
    """Draws random numbers."""

    expects: Expects = ("steps_are_deterministic", "other weights")
    made = Draws


class HidesState(_Of):
    """Does not save all."""

    expects: Expects = ("goes_on_from_its_state", "another end than 6 steps")
    made = Hides


class Still(OptimizerRecipe):
    """Does not move what does not decay."""

    expects: Expects = ("every_parameter_moves", "as before")

    def build(self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool) -> Any:
        rates = [{**group.settings(), "eps": 1e-6 if group.decays else 1e30} for group in groups]
        return AdamW(rates, lr=learning_rate, fused=False)


class TakenName(GoodOptimizer):
    """Has an argument that every optimiser has."""

    expects: Expects = ("no_argument_of_every_optimizer", "learning_rate")

    def __init__(self, learning_rate: float = 1.0) -> None:
        """Take a rate.

        Args:
            learning_rate: too many.
        """
        super().__init__()


class GoesBelowZero(GoodSchedule):
    """Goes on below 0 after the end."""

    expects: Expects = ("factors_are_in_range", "is -")

    def factor(self, progress: Progress) -> float:
        return (progress.end - progress.done) / max(1.0, progress.end - progress.warmup)


class DividesByNothing(GoodSchedule):
    """Is no number at the end."""

    expects: Expects = ("factors_are_in_range", "is nan")

    def factor(self, progress: Progress) -> float:
        return float("nan") if progress.share == 1 else 1.0


class BeginsLow(GoodSchedule):
    """Begins at a half."""

    expects: Expects = ("begins_at_one", "is 0.5")

    def factor(self, progress: Progress) -> float:
        return super().factor(progress) / 2


class Counts(GoodSchedule):
    """Counts how often it is asked."""

    expects: Expects = ("keeps_no_state", "asked before")

    def __init__(self) -> None:
        self.asked = 0

    def factor(self, progress: Progress) -> float:
        if progress.done > progress.warmup:
            self.asked += 1
        return 1 / (1 + self.asked)


class SaysItNeedsNoEnd(GoodSchedule):
    """Needs the end."""

    expects: Expects = ("needs_end_is_true", "an endless one")
    needs_end = False


class AlwaysTheLoss(GoodMonitor):
    """Takes every metric for a loss."""

    expects: Expects = ("goes_by_its_metric", "whose better end is max gives other factors")

    def factor(self, progress: Progress) -> float:
        return 0.5 if progress.scores and progress.scores[-1] > min(progress.scores) else 1.0


class Unmoved(GoodMonitor):
    """Names a metric and goes by none."""

    expects: Expects = ("goes_by_its_metric", "the factor is 1.0")

    def factor(self, progress: Progress) -> float:
        del progress
        return 1.0


class HasAFunction(Schedule):
    """Cannot be pickled."""

    expects: Expects = ("can_be_sent_to_workers", "pickling it raises")

    def __init__(self) -> None:
        self.shape = lambda share: 1 - share

    def factor(self, progress: Progress) -> float:
        return float(self.shape(progress.share))
