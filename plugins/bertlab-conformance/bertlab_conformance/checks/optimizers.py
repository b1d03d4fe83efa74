"""Checks of optimisers: what they train, what they obey, and that they go on exactly."""

import io
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bertlab.api import ParameterGroup
from bertlab.extend import OptimizerConfig, parameter_groups
from bertlab_conformance.cases import SEED, Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.signatures import taken_keys

_RATE, _DECAY = 0.01, 0.5
_WORDS, _SIZE, _CLASSES = 7, 8, 3
_BUILT = ("trains_every_parameter",)


class _Model(nn.Module):
    """Parameters of every kind: embeddings, matrices, biases, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.encoder = nn.Sequential(
            nn.Embedding(_WORDS, _SIZE),
            nn.Linear(_SIZE, _SIZE),
            nn.LayerNorm(_SIZE),
            nn.Tanh(),
            nn.Linear(_SIZE, _SIZE),
        )
        self.tasks = nn.ModuleDict({"head": nn.Linear(_SIZE, _CLASSES)})

    def loss(self, step: int) -> Tensor:
        """Return the loss of a batch whose classes follow from its words."""
        words = torch.randint(_WORDS, (16,), generator=torch.Generator().manual_seed(step))
        logits = self.tasks["head"](self.encoder(words))
        return nn.functional.cross_entropy(logits, words % _CLASSES)


def _groups(model: nn.Module, weight_decay: float = 0.0) -> list[ParameterGroup]:
    return parameter_groups(OptimizerConfig(learning_rate=_RATE, weight_decay=weight_decay), model)


def _build(case: Case, groups: Sequence[ParameterGroup]) -> Optimizer:
    made: Optimizer = case.new().build(groups, _RATE, False)
    return made


def _made(case: Case, weight_decay: float = 0.0) -> tuple[_Model, Optimizer]:
    model = _Model()
    return model, _build(case, _groups(model, weight_decay))


def _steps(model: _Model, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model.loss(step).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in model.named_parameters()}


def _moved(model: nn.Module, before: dict[str, Tensor]) -> list[str]:
    now = model.named_parameters()
    return [name for name, each in now if not torch.equal(each, before[name])]


@check("optimizer", after=("arguments_have_names",))
def no_argument_of_every_optimizer(case: Case) -> None:
    """No argument has the name of a setting that every optimiser has."""
    taken = sorted(taken_keys(case.plugin) & {*signature(case.plugin).parameters})
    if taken:
        raise ConformanceFailure(
            f"__init__ has {', '.join(taken)}",
            "leave it out: build() gets what every optimiser has with its groups",
        )


@check("optimizer", after=("is_complete", "arguments_have_defaults"))
def trains_every_parameter(case: Case) -> None:
    """``build`` returns a ``torch.optim.Optimizer`` of all parameters, each of them once."""
    model, optimizer = _made(case)
    if not isinstance(optimizer, Optimizer):
        raise ConformanceFailure(
            f"build() returns a {type(optimizer).__name__}", "return a torch.optim.Optimizer"
        )
    taken = [id(each) for group in optimizer.param_groups for each in group["params"]]
    left = [name for name, each in model.named_parameters() if taken.count(id(each)) != 1]
    if left:
        raise ConformanceFailure(
            f"not once in its param_groups: {', '.join(left)}",
            "use every group; for what the optimiser is not made for, join it with AdamW: "
            "bertlab.JoinedOptimizer",
        )


@check("optimizer", after=_BUILT)
def every_parameter_moves(case: Case) -> None:
    """A few steps change all that is trained."""
    model, optimizer = _made(case)
    before = _weights(model)
    _steps(model, optimizer, range(3))
    still = [name for name in before if name not in _moved(model, before)]
    if still:
        raise ConformanceFailure(
            f"after 3 steps as before: {', '.join(still)}", "take a step for every group"
        )


@check("optimizer", after=_BUILT)
def groups_have_their_rates(case: Case) -> None:
    """A group whose learning rate is half as large learns half as fast (``layer_decay``)."""
    model = _Model()
    groups = _groups(model)
    halves = [replace(groups[0], learning_rate=_RATE / 2), *groups[1:]]
    whole, half = (_rates(_build(case, each)) for each in (groups, halves))
    for each in groups[0].parameters:
        if abs(half[id(each)] * 2 - whole[id(each)]) > 1e-9:
            raise ConformanceFailure(
                f"a group's rate is {_RATE / 2}, and its parameters get {half[id(each)]}; at "
                f"{_RATE} they get {whole[id(each)]}",
                "give torch each group's settings(), whose lr is the group's",
            )


def _rates(optimizer: Optimizer) -> dict[int, float]:
    return {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}


@check("optimizer", after=_BUILT)
def obeys_the_schedule(case: Case) -> None:
    """A step reads the learning rate of its ``param_groups``: at 0, nothing moves.

    Where there is ``eval()``, an average of the weights may go on: the same one whatever gradients
    and weight decay are.
    """
    before, after = _at_rate_0(case, range(2, 4))
    moved = [name for name, each in after.items() if not torch.equal(each, before[name])]
    if moved and hasattr(_made(case)[1], "eval"):
        _, other = _at_rate_0(case, range(4, 6), weight_decay=0.0)
        moved = [name for name in moved if not torch.equal(after[name], other[name])]
    if moved:
        raise ConformanceFailure(
            f"at a learning rate of 0, these move: {', '.join(moved)}",
            "multiply the whole step, weight decay included, by group['lr'] at each step",
        )


def _at_rate_0(
    case: Case, steps: range, weight_decay: float | None = None
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the weights before and after steps at a rate of 0, behind two at the usual one."""
    model, optimizer = _made(case, _DECAY if case.plugin.has_weight_decay else 0.0)
    _steps(model, optimizer, range(2))
    for group in optimizer.param_groups:
        group["lr"] = 0.0
        if weight_decay is not None:
            group["weight_decay"] = weight_decay
    before = _weights(model)
    _steps(model, optimizer, steps)
    return before, _weights(model)


@check("optimizer", after=(*_BUILT, "obeys_the_schedule"))
def modes_are_called(case: Case) -> None:
    """Where an optimiser has ``train()`` and ``eval()``, ``callbacks`` has what calls them."""
    _, optimizer = _made(case)
    if not all(callable(getattr(optimizer, name, None)) for name in ("train", "eval")):
        raise NotApplicable("its optimizer has no train() and eval()")
    if not case.new().callbacks():
        raise ConformanceFailure(
            "its optimizer has train() and eval(), and callbacks() is empty: none calls them, so "
            "those weights are evaluated and saved that are trained",
            "return [bertlab_modern.modes.OptimizerModes()] from callbacks(), or leave both out",
        )


@check("optimizer", after=(*_BUILT, "obeys_the_schedule"))
def only_matrices_decay(case: Case) -> None:
    """Where gradients are 0, weight decay shrinks what is to decay and leaves the rest alone."""
    if not case.plugin.has_weight_decay:
        return
    model, optimizer = _made(case, _DECAY)
    before = _weights(model)
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    optimizer.step()
    decayed = {id(p) for group in _groups(model) if group.decays for p in group.parameters}
    for name, each in model.named_parameters():
        shrinks = bool(each.norm() < before[name].norm())
        if id(each) in decayed and not shrinks:
            raise ConformanceFailure(
                f"{name} does not shrink, with weight_decay {_DECAY}",
                "read weight_decay of each group, or set has_weight_decay = False",
            )
        if id(each) not in decayed and not torch.equal(each, before[name]):
            raise ConformanceFailure(
                f"{name} changes, and its group's weight_decay is 0",
                "read weight_decay of each group, not one for all",
            )


@check("optimizer", after=_BUILT)
def passes_over_missing_gradients(case: Case) -> None:
    """A parameter without a gradient stays as it is, weight decay or not."""
    model, optimizer = _made(case, _DECAY if case.plugin.has_weight_decay else 0.0)
    _steps(model, optimizer, range(2))
    before = _weights(model)
    optimizer.zero_grad(set_to_none=True)
    optimizer.step()
    moved = _moved(model, before)
    if moved:
        raise ConformanceFailure(
            f"without a gradient, these move: {', '.join(moved)}",
            "leave out parameters whose grad is None: steps that are not finite are skipped so",
        )


@check("optimizer", after=_BUILT)
def takes_a_closure(case: Case) -> None:
    """``step(closure)`` calls it once, with gradients on, and returns its loss."""
    if case.plugin.needs_closure:
        raise NotApplicable("it calls the closure more than once, as needs_closure says")
    model, optimizer = _made(case)
    calls = []

    def closure() -> float:
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        loss = model.loss(0)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    before = _weights(model)
    returned = optimizer.step(closure)
    if calls != [True] or returned is None or not _moved(model, before):
        raise ConformanceFailure(
            f"the closure was called {len(calls)} times, gradients on: {calls}; step() returned "
            f"{returned}",
            "call it first, once, under torch.enable_grad(), and return what it returns: Lightning "
            "computes gradients in it",
        )


@check("optimizer", after=(*_BUILT, "steps_are_deterministic"))
def goes_on_from_its_state(case: Case) -> None:
    """A run that is saved and resumed ends with the same bits as one that was not."""
    model, optimizer = _made(case, 0.1 if case.plugin.has_weight_decay else 0.0)
    _steps(model, optimizer, range(3))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    _steps(model, optimizer, range(3, 6))
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again, resumed = _made(case, 0.1 if case.plugin.has_weight_decay else 0.0)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    _steps(again, resumed, range(3, 6))
    moved = _moved(again, _weights(model))
    if moved:
        raise ConformanceFailure(
            f"3 steps, saved, 3 more: another end than 6 steps in {', '.join(moved)}",
            "keep all that it remembers in self.state and self.param_groups",
        )


@check("optimizer", after=_BUILT)
def steps_are_deterministic(case: Case) -> None:
    """The same weights and gradients give the same bits again."""
    ends = []
    for number in range(2):
        model, optimizer = _made(case)
        torch.manual_seed(number)  # the global generator is another one
        _steps(model, optimizer, range(3))
        ends.append(_weights(model))
    differing = [name for name, each in ends[0].items() if not torch.equal(each, ends[1][name])]
    if differing:
        raise ConformanceFailure(
            f"the second time, other weights in {', '.join(differing)}",
            "draw no random numbers in a step, and keep nothing in globals",
        )


@check("optimizer", after=("every_parameter_moves",))
def lowers_a_loss(case: Case) -> None:
    """300 steps on a task of 7 words lower its loss by a tenth."""
    model, optimizer = _made(case)
    first = model.loss(0).item()
    _steps(model, optimizer, range(300))
    last = model.loss(0).item()
    if not last < 0.9 * first:
        raise ConformanceFailure(
            f"the loss goes from {first:.3f} to {last:.3f}",
            "look at the sign of the step; or give the kit arguments that suit a rate of 0.01",
        )
