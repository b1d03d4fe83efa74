"""From a module to its optimiser, and the rate by steps or by the clock."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Timer
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from bertlab.api.encoder import Encoder
from bertlab.api.optimizer import ParameterGroup, ParameterKind, Progress, factor_at
from bertlab.api.task import Task
from bertlab.data.module import TaskData, limited
from bertlab.data.run_length import check_changes, is_endless
from bertlab.errors import ConfigError, PluginError, nearest
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab.plugins.index import of_package

ENTRIES = "entries"  # in an optimiser's state: how many parameters it remembers something of


def parameter_groups(config: OptimizerConfig, module: nn.Module) -> list[ParameterGroup]:
    """Return the trainable parameters in groups for an optimiser.

    Groups are two by weight decay, for each learning rate; the head's come first. A parameter that
    two modules share is in one group, and the encoder's place counts.
    """
    depths: dict[nn.Parameter, int] = {}
    if config.layer_decay != 1:
        find = of_package("parameter_depths", ConfigError, "model.optimizer.layer_decay")
        depths = find(module.get_submodule("encoder"), "layer_decay")
    kinds = parameter_kinds(module)
    names = {parameter: name for name, parameter in module.named_parameters()}
    decayed, plain = split_by_weight_decay(module)
    groups = []
    for depth in sorted({0, *depths.values()}):
        for trained, decays in ((decayed, True), (plain, False)):
            parameters = [p for p in trained if depths.get(p, 0) == depth]
            if parameters or depth == 0:
                rate = config.learning_rate * config.layer_decay**depth  # 0.9, depth 2: 0.81
                decay = config.weight_decay if decays else 0.0
                own = [kinds[p] for p in parameters]
                called = [names[p] for p in parameters]
                groups.append(ParameterGroup(parameters, own, rate, decay, decays, called))
    return groups


def parameter_kinds(module: nn.Module) -> dict[nn.Parameter, ParameterKind]:
    """Return what each parameter is; what tasks share with the encoder is the encoder's."""
    _, plain = split_by_weight_decay(module)
    without_decay = set(plain)
    layers = (each for each in module.modules() if isinstance(each, nn.Embedding))
    embeddings = {parameter for layer in layers for parameter in layer.parameters()}
    kinds: dict[nn.Parameter, ParameterKind] = {}
    # named_parameters() yields what is shared once, by its first name: BertModule.encoder's
    for name, parameter in module.named_parameters():
        if parameter in embeddings:
            kinds[parameter] = "embedding"
        elif parameter.ndim != 2 or parameter in without_decay:
            kinds[parameter] = "vector"
        else:
            kinds[parameter] = "head" if name.startswith("tasks.") else "matrix"
    return kinds


def freeze_layers(config: OptimizerConfig, module: nn.Module) -> None:
    """Set ``requires_grad`` to False in the part of ``module.encoder`` that is not trained.

    Call it before the module is wrapped for several devices: DDP waits for the gradient of every
    parameter that required one then. To call it again changes nothing.
    """
    if config.frozen_layers is not None:
        freeze = of_package("model.freeze_layers", ConfigError, "model.optimizer.frozen_layers")
        freeze(module.get_submodule("encoder"), config.frozen_layers)


def split_by_weight_decay(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the trainable parameters that decay, and those that do not: biases, norms, vectors.

    A bias has a name that begins with ``bias`` or ends in ``_bias``; a norm is a module whose class
    has ``Norm`` in its name, of PyTorch or of a plugin; a vector has one dimension or none. What an
    encoder or a task says in ``decays`` counts before that.
    """
    said = _said_of_decay(module)
    plain = {
        id(parameter)
        for layer in module.modules()
        for name, parameter in layer.named_parameters(recurse=False)
        # without decay: bias, an LSTM's bias_ih_l0, attention_bias
        # RMSNorm, BatchNorm1d and a plugin's ScaleNorm; and classes that are made of LayerNorm
        if isinstance(layer, nn.LayerNorm)
        or re.search("Norm(?!al)", type(layer).__name__)
        or name.startswith("bias")
        or name.endswith("_bias")
        or parameter.ndim < 2
    }
    decayed, others = list[nn.Parameter](), list[nn.Parameter]()
    for parameter in filter(lambda each: each.requires_grad, module.parameters()):
        decays = said.get(id(parameter), id(parameter) not in plain)
        (decayed if decays else others).append(parameter)
    return decayed, others


def _said_of_decay(module: nn.Module) -> dict[int, bool]:
    """Return what encoder and tasks say of their parameters, by ``id``; the encoder's counts."""
    # of a parameter that two of their names hold, the longer name counts
    parts = [each for each in module.modules() if isinstance(each, Encoder | Task)]
    said: dict[int, bool] = {}
    for part in sorted(parts, key=lambda each: isinstance(each, Encoder)):
        own = dict(part.named_parameters())
        for name in sorted(part.decays, key=len):
            found = [each for key, each in own.items() if f"{key}.".startswith(f"{name}.")]
            if not found:
                raise PluginError(
                    f"{type(part).__module__}.{type(part).__name__}.decays: found {name!r}, which "
                    f"none of its parameters is called{nearest(name, own)}"
                )
            said |= {id(each): part.decays[name] for each in found}
    return said


def build_optimizer(config: OptimizerConfig, module: nn.Module, fused: bool = True) -> Optimizer:
    """Freeze what the config says and return its optimiser of the parameters left to train."""
    freeze_layers(config, module)
    groups = parameter_groups(config, module)
    optimizer = config.recipe.build(groups, config.learning_rate, fused)
    given = {id(each) for group in groups for each in group.parameters}
    taken = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if given != taken:
        left = [name for name, each in module.named_parameters() if id(each) in given - taken]
        raise PluginError(
            f"the optimizer {type(config.recipe).__name__} trains other parameters than it was "
            f"given; it leaves out {', '.join(left) or 'none, but has more'}"
        )
    return optimizer


def parameter_names(module: nn.Module, optimizer: Optimizer) -> list[str]:
    """Return the module's names of an optimiser's parameters, in the order of its state."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    return [names[each] for group in optimizer.param_groups for each in group["params"]]


# of a module, its optimiser and a ``state_dict`` for that
TakeState = Callable[[nn.Module, Optimizer, dict[str, Any]], None]


class EarlierOptimizer(Protocol):
    """What an optimiser remembers of an earlier run; bertlab-studies has the class of it."""

    @property
    def steps(self) -> int:
        """Steps that the schedule has done."""

    def check(self, module: nn.Module, config: OptimizerConfig) -> None:
        """Raise CheckpointError unless a module's optimiser can take some of it over."""

    def load(self, module: nn.Module, optimizer: Optimizer, take: TakeState | None = None) -> None:
        """Give it to an optimiser; ``take`` does where a strategy has divided the weights."""


_STEPS_THAT_COMPILE = 2


def check_schedule(config: OptimizerConfig, endless: bool, timed: bool = False) -> None:
    """Raise ConfigError if the schedule needs an end and the run has none."""
    if not endless or config.schedule_steps is not None:
        return
    if timed and config.warmup_steps >= 1:
        raise ConfigError(
            f"model.optimizer.warmup_steps: found {config.warmup_steps:g}, expected a share below "
            "1, of the time, where trainer.max_time ends the run"
        )
    if not timed and (config.schedule.needs_end or 0 < config.warmup_steps < 1):
        raise ConfigError(
            "model.optimizer.schedule: this one, or a warm-up share, needs the number of steps; "
            "set trainer.max_steps or trainer.max_epochs, or schedule: constant with whole "
            "warmup_steps"
        )


def check_schedule_steps(config: OptimizerConfig, done: int, steps: int) -> None:
    """Raise ConfigError if the schedule ends before the run."""
    if config.schedule_steps is None:
        return
    last = done + max(steps, 1)
    if config.schedule.needs_end and last > config.schedule_steps:
        raise ConfigError(
            f"model.optimizer.schedule_steps: found {config.schedule_steps}, expected at least "
            f"{last}, where this run ends; the schedule would be over before"
        )


def check_whole_steps(
    tasks: Mapping[str, Task], accumulate: int, devices: int, computes_again: str = ""
) -> None:
    """Raise ConfigError if a step is divided, but loss or optimiser (its name) needs it whole."""
    if computes_again and accumulate > 1:
        raise ConfigError(
            f"trainer.accumulate_grad_batches: found {accumulate}, expected 1: "
            f"{computes_again} computes the gradient of a step at other weights again"
        )
    for name, task in tasks.items():
        if task.compares_sequences and accumulate * devices > 1:
            key = "accumulate_grad_batches" if accumulate > 1 else "devices"
            raise ConfigError(
                f"trainer.{key}: found {max(accumulate, devices)}, expected 1: {name} compares the "
                "sequences of a step with each other, and would see a part of them only"
            )


def _check_shares(trainer: Trainer, steps_per_epoch: int) -> None:
    """Raise ConfigError if an epoch, or an evaluation, would end within an optimiser step."""
    parts = trainer.accumulate_grad_batches
    batches = parts * steps_per_epoch
    for key in ("limit_train_batches", "val_check_interval"):
        found: int | float = getattr(trainer, key)
        # a share is one of an epoch, which a limit may have made shorter
        is_limit = key == "limit_train_batches" or isinstance(found, float)
        batches = limited(batches, found) if is_limit else int(found)
        if batches % parts:
            raise ConfigError(
                f"trainer.{key}: found {found}, which is {batches} batches, expected a multiple of "
                f"trainer.accumulate_grad_batches, {parts}: a step has all of its parts"
            )


def check_end(
    config: OptimizerConfig, trainer: Trainer, done: int, tasks: Mapping[str, Task], data: TaskData
) -> None:
    """Raise ConfigError if schedule or tasks do not fit the end of a run, or its steps."""
    endless = is_endless(trainer.max_steps, trainer.max_epochs)
    check_schedule(config, endless, run_timer(trainer) is not None)
    steps = data.total_steps(trainer)
    check_schedule_steps(config, done, 1 if math.isinf(steps) else int(steps))
    check_changes(tasks, data, endless)
    if not getattr(trainer, "fast_dev_run", False):  # which has its own few batches
        is_fixed = isinstance(data.sequences_per_step(), int)  # else the run is one epoch
        _check_shares(trainer, data.steps_per_epoch() if is_fixed else int(steps))
    again = config.name if config.recipe.needs_closure else ""
    check_whole_steps(tasks, trainer.accumulate_grad_batches, trainer.world_size, again)
    if again and trainer.precision == "16-mixed":  # whose scaler takes no closure
        raise ConfigError(f"trainer.precision: found 16-mixed, expected another with {again}")


Scores = Callable[[], Sequence[float]]  # of the metric that a schedule goes by


def build_schedule(
    config: OptimizerConfig,
    optimizer: Optimizer,
    total_steps: float,
    steps_done: int = 0,
    scores: Scores = tuple,
) -> LambdaLR:
    """Return the schedule, to be stepped once an optimiser step."""
    endless = total_steps == float("inf") or total_steps < 0
    check_schedule(config, endless)
    if config.schedule_steps is None:
        steps_done = 0
    else:
        total_steps, endless = config.schedule_steps, False
    warmup = config.warmup_steps
    if warmup < 1:
        warmup = 0 if endless else round(warmup * total_steps)
    end, warmup = math.inf if endless else total_steps, int(warmup)

    def factor(step: int) -> float:
        return factor_at(config.schedule, Progress(step, end, warmup, scores()))

    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]  # LambdaLR wants it where it does not begin at 0
    return LambdaLR(optimizer, factor, last_epoch=steps_done - 1)  # it counts one when it is made


def build_timed_schedule(
    config: OptimizerConfig, optimizer: Optimizer, timer: Timer, scores: Scores = tuple
) -> LambdaLR:
    """Return a schedule whose warm-up and decay follow the clock, to be stepped once a step.

    The clock starts after the first two steps: compiling in them can take longer than the warm-up.
    That of a run that goes on counts from its start.
    """
    check_schedule(config, endless=True, timed=True)
    # resumed after 40 of 60 minutes: the end stays 60, and warm-up is over
    end = timer.time_elapsed() + (timer.time_remaining() or 0.0)
    goes_on, begun = timer.time_elapsed() > 0, 0.0

    def factor(step: int) -> float:
        nonlocal begun
        now = timer.time_elapsed()
        if step <= _STEPS_THAT_COMPILE and not goes_on:  # the clock stands still
            begun = now
        length = end - begun
        warmup = config.warmup_steps * length
        return factor_at(config.schedule, Progress(now - begun, length, warmup, scores()))

    return LambdaLR(optimizer, factor)


def run_timer(trainer: Trainer) -> Timer | None:
    """Return the timer of ``trainer.max_time``; None if there is none."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return next((each for each in callbacks if isinstance(each, Timer)), None)
