"""Lightning's Trainer as bertlab sets it up, its loggers, and the module that it trains."""

import contextlib
import ctypes
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.callbacks import ProgressBar, Timer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from lightning.pytorch.strategies import DDPStrategy, Strategy, StrategyRegistry

from bertlab.api.task import Task, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import restore_module, untrained, warm_tokenizer
from bertlab.config.parser import LoggerChoice
from bertlab.config.run_config import RunConfig
from bertlab.data.module import TaskData
from bertlab.errors import DataError, TrainerError, missing_package, nearest, show_logs_visibly
from bertlab.model.build import build_encoder, build_metrics, check_lengths
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import read_optimizer
from bertlab.plugins.hooks import first_result
from bertlab.plugins.index import where_to_get
from bertlab.training.callbacks import can_draw
from bertlab.training.record import WholeCheckpointIO

_TRACKERS = ("wandb", "mlflow")


def make_loggers(
    given: LoggerChoice, directory: Path, added: Sequence[Callback] = ()
) -> list[Logger]:
    """Return the loggers of a run, which write into its directory, and those of packages.

    A package's callback has the trackers that are named (``wandb``) as ``trackers``.
    """
    if given is False:
        return []
    listed = given if isinstance(given, list) else [given]
    trackers = [each.trackers for each in added if hasattr(each, "trackers")]
    named = next((each for each in listed if each in _TRACKERS), None)
    if named is not None and not trackers:
        raise TrainerError(f"trainer.logger: found {named}{where_to_get('logger', str(named))}")
    own: list[Logger] = [CSVLogger(directory, name="csv")]
    if not any(isinstance(each, TensorBoardLogger) for each in listed):
        own.append(TensorBoardLogger(directory, name="tensorboard"))
    own += [each for all_ in trackers for each in all_]
    return own + [each for each in listed if isinstance(each, Logger)]


def profiler_in(directory: Path, name: str) -> Profiler | str:
    """Return a profiler of Lightning's by its short name, which writes into a run's directory.

    By itself it prints its table as a note of Lightning's, which bertlab keeps quiet.
    """
    known: dict[str, type[SimpleProfiler | AdvancedProfiler | PyTorchProfiler]] = {
        "simple": SimpleProfiler,
        "advanced": AdvancedProfiler,
        "pytorch": PyTorchProfiler,
    }
    return known[name](dirpath=directory, filename="profile") if name in known else name


_LEAST = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "gradient_clip_val": 0,
    "log_every_n_steps": 0,
    "num_nodes": 1,
}

# callbacks of Lightning's that change what a step is, or what the weights are called
_REFUSED = {
    "GradientAccumulationScheduler": "a step has the same number of parts all along; expected "
    "trainer.accumulate_grad_batches",
    "BatchSizeFinder": "a step is data.batch_size sequences; expected "
    "trainer.accumulate_grad_batches, auto with bertlab-gpu",
    "BackboneFinetuning": "it freezes what a module calls its backbone, and bertlab's has none",
    "SpikeDetection": "it leaves out batches by their number, and a step's sequences follow from "
    "its own; bertlab-guard warns of losses that jump",
    "StochasticWeightAveraging": "it averages when the last weights are saved already; expected "
    "WeightAveraging or EMAWeightAveraging",
    "OnExceptionCheckpoint": "a new run would start from the file that an earlier one left; "
    "expected --ckpt_path RUN, which has the last whole checkpoint",
    "ModelPruning": "it gives weights other names, by which no checkpoint could be read",
}

# DDP waits for the gradient of every parameter, unless it is told that some have none
_WITH_IDLE = {each: f"{each}_find_unused_parameters_true" for each in ("ddp", "ddp_spawn")}
_WITH_IDLE["auto"] = _WITH_IDLE["ddp"]


def make_trainer(
    settings: Mapping[str, Any],
    directory: Path | None = None,
    callbacks: Sequence[Callback] = (),
    idles: bool = False,
) -> Trainer:
    """Make a Trainer."""
    arguments = dict(settings)
    _check_numbers(arguments)
    _check_names(arguments)
    _follow_torchrun(arguments)
    shown = _without_second_bar(arguments, callbacks)
    arguments["callbacks"] = [*(arguments["callbacks"] or []), *shown]
    _check_steps(arguments)
    if directory is None:
        arguments["logger"] = False
    elif isinstance(arguments["profiler"], str):
        arguments["profiler"] = profiler_in(directory, arguments["profiler"])
    # Lightning: 500 is batches, 0.5 a share of an epoch, 1.0 a whole one
    if isinstance(arguments["val_check_interval"], int):
        if (epochs := arguments["check_val_every_n_epoch"]) not in (1, None):
            found = f"trainer.check_val_every_n_epoch: found {epochs}"
            raise TrainerError(f"{found} beside a trainer.val_check_interval in batches; take one")
        arguments["check_val_every_n_epoch"] = None  # count batches across epochs
    strategy = arguments["strategy"] = _strategy(arguments["strategy"])
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    # these write checkpoints of a form of their own, one part a process; "deepspeed_stage_2"
    writes_itself = name.lower().startswith(("fsdp", "deepspeed", "modelparallel"))
    if directory is not None and not writes_itself:
        given = arguments["plugins"] or []
        given = given if isinstance(given, list) else [given]
        if not any(isinstance(each, CheckpointIO) for each in given):
            added = [each.checkpoint_io for each in callbacks if hasattr(each, "checkpoint_io")]
            arguments["plugins"] = [*given, *(added or [WholeCheckpointIO(directory)])]
    arguments["default_root_dir"] = arguments["default_root_dir"] or directory
    _check_interval(arguments["val_check_interval"], arguments["accumulate_grad_batches"])
    times = any(isinstance(each, Timer) for each in arguments["callbacks"])
    if arguments["max_time"] and arguments["accumulate_grad_batches"] > 1 and not times:
        arguments["callbacks"].append(_TimerOfSteps(arguments["max_time"]))
    try:
        trainer = Trainer(**arguments)
        # also where torchrun has one process left
        is_ddp = isinstance(trainer.strategy, DDPStrategy)
        if idles and is_ddp and arguments["strategy"] in _WITH_IDLE:
            trainer = Trainer(**arguments | {"strategy": _WITH_IDLE[arguments["strategy"]]})
    except (MisconfigurationException, RuntimeError, ValueError, TypeError, ImportError) as error:
        raise TrainerError(_named(error, arguments)) from error
    _check_torchrun(trainer, settings["devices"])
    return trainer


class _TimerOfSteps(Timer):
    """Looks at the clock between optimiser steps only, which are done with all of their parts."""

    state_key = "Timer"

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:  # noqa: ANN401
        if not trainer.fit_loop._should_accumulate():
            super().on_train_batch_end(trainer, *args)


def _without_second_bar(arguments: dict[str, Any], added: Sequence[Callback]) -> list[Callback]:
    """Return callbacks of packages without their bar, where the config has its own or none."""
    given = any(isinstance(each, ProgressBar) for each in arguments["callbacks"] or ())
    if arguments["enable_progress_bar"] is not False and not given:
        arguments["enable_progress_bar"] = can_draw()
        if can_draw():
            return [*added]
    return [each for each in added if not isinstance(each, ProgressBar)]


def _follow_torchrun(arguments: dict[str, Any]) -> None:
    """Take the number of processes from torchrun, which starts others after one is lost or back."""
    if TorchElasticEnvironment.detect():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        # 3 machines × 2 processes: a world of 6
        arguments["num_nodes"] = int(os.environ["WORLD_SIZE"]) // here
        if arguments["devices"] in ("auto", -1, "-1"):
            arguments["devices"] = here


def _check_torchrun(trainer: Trainer, devices: object) -> None:
    """Refuse another number of processes than torchrun has started on this machine."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
    if TorchElasticEnvironment.detect() and trainer.num_devices != here:
        raise TrainerError(
            f"trainer.devices: found {devices}, but torchrun starts {here} here "
            "(--nproc_per_node); expected that number, or auto"
        )


def _check_numbers(arguments: Mapping[str, Any]) -> None:
    """Refuse numbers that Lightning takes, and then trains on nothing or ignores."""
    for key, least in _LEAST.items():
        found = arguments[key]
        if found is not None and not found >= least:  # NaN is not either
            raise TrainerError(f"trainer.{key}: found {found}, expected {least} or more")
    for key, lower in (("max_steps", "min_steps"), ("max_epochs", "min_epochs")):
        most, least = arguments[key], arguments[lower] or 0
        if most == 0:
            raise TrainerError(f"trainer.{key}: found 0, expected 1 or more, or -1 for no limit")
        if most is not None and 0 < most < least:
            raise TrainerError(f"trainer.{lower}: found {least}, expected at most {key}, {most}")


def _check_steps(arguments: Mapping[str, Any]) -> None:
    """Refuse what would make other steps, or none, without a word."""
    callbacks = arguments["callbacks"]
    takes_rate = any(hasattr(each, "takes_found_rate") for each in callbacks)
    for name in (kind.__name__ for each in callbacks for kind in type(each).__mro__):
        if name in _REFUSED:
            raise TrainerError(f"trainer.callbacks: found {name}: {_REFUSED[name]}")
        if name == "LearningRateFinder" and not takes_rate:  # no package gives it to the schedule
            raise TrainerError(f"trainer.callbacks: found {name}{where_to_get('callback', name)}")
    refused = {
        "overfit_batches": "0: every epoch has other sequences; overfit a small text or file",
        "barebones": "false: a run has logs and checkpoints; trainer.logger: false has no logs",
    }
    for key, expected in refused.items():
        if arguments[key]:
            raise TrainerError(f"trainer.{key}: found {arguments[key]}, expected {expected}")
    if arguments["limit_train_batches"] == 0:
        raise TrainerError("trainer.limit_train_batches: found 0, expected above 0")


def _check_names(arguments: Mapping[str, Any]) -> None:
    """Refuse an accelerator that is none, or not here, and a strategy that is none."""
    found = arguments["accelerator"]
    classes = {name: AcceleratorRegistry[name]["accelerator"] for name in AcceleratorRegistry}
    here = [name for name, each in classes.items() if each.is_available()]
    offered = ["auto", *sorted([*here, *(["gpu"] if {"cuda", "mps"} & {*here} else [])])]
    if isinstance(found, str) and found not in offered:
        known = "is not on this machine" if found in ("gpu", *classes) else "is unknown"
        words = f"trainer.accelerator: found {found!r}, which {known}"
        raise TrainerError(f"{words}; expected one of {', '.join(offered)}")
    found, strategies = arguments["strategy"], ["auto", *StrategyRegistry.available_strategies()]
    if isinstance(found, str) and found not in strategies:
        raise TrainerError(
            f"trainer.strategy: found {found!r}, expected auto, ddp, fsdp or another that "
            f"Lightning knows{nearest(found, strategies)}"
        )


def _strategy(given: Strategy | str) -> Strategy | str:
    """Return the strategy that packages have by that name; else leave it to Lightning."""
    if not isinstance(given, str) or given == "auto":
        return given
    found, source = first_result("bertlab_strategy", name=given), where_to_get("strategy", given)
    if found is None and source:  # Lightning's fsdp writes checkpoints of its own
        raise TrainerError(f"trainer.strategy: found {given!r}{source}")
    return found or given


_OF_DEVICES = re.compile(  # refusals of the CPU, of any accelerator, and of GPUs
    "`devices` selected|.*value is not a valid input|You requested gpu|GPUs re|Device ID|invalid li"
)


def _named(error: Exception, arguments: Mapping[str, Any]) -> str:
    """Return what Lightning refuses with the key that it speaks of."""
    refusal = " ".join(str(error).split())
    if _OF_DEVICES.match(refusal):
        gpus = 0 if arguments["accelerator"] == "cpu" else torch.cuda.device_count()
        number = f"1 to {gpus} GPUs, a list of theirs as [0]" if gpus else "1 or more processes"
        return f"trainer.devices: found {arguments['devices']!r}, expected {number}, or auto"
    for key in ("devices", "strategy", *arguments):  # one of devices speaks of accelerators too
        found = arguments[key]
        # transformer-engine: Requirement 'transformer_engine>=0.11.0' not met
        package = isinstance(found, str) and found.replace("-", "_") in refusal
        if package or re.search(rf"\b{key}\b", refusal):
            shown = "" if key == "callbacks" else f"found {found!r}: "
            return f"trainer.{key}: {shown}{missing_package(error) or refusal}"
    return f"trainer: {missing_package(error) or refusal}"


def _check_interval(found: int | float | None, accumulate: int) -> None:
    if found is not None and not (isinstance(found, int | float) and found > 0):
        words = f"trainer.val_check_interval: found {found}"
        raise TrainerError(f"{words}, expected 1 or more batches, or a share of an epoch")
    if isinstance(found, int) and found % accumulate:
        raise TrainerError(
            f"trainer.val_check_interval: found {found} batches, expected a multiple of "
            f"trainer.accumulate_grad_batches, {accumulate}: evaluations and checkpoints fall "
            "between optimiser steps"
        )


def quiet_lightning() -> None:
    """Silence Lightning's tips and device lines; warnings stay."""
    show_logs_visibly()  # again: Lightning has set a form of warnings
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    # a resumed run goes on in its own directory
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
    # one that goes on elsewhere chooses the best of what it writes itself
    warnings.filterwarnings("ignore", message="The dirpath has changed from")
    # a short run ends before its first evaluation; its last step is scored all the same
    warnings.filterwarnings("ignore", message=".*could not find the monitored key")
    # an epoch of few steps logs once, at its end
    warnings.filterwarnings("ignore", message=".*is smaller than the logging interval")
    # lightning 2.6.6 with torch 2.13
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")


# parameters of mallopt(3)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next allocation.

    glibc asks the system for every large tensor anew, which clears its pages: a tenth of a training
    step on a CPU. All threads share one arena, so that the backward pass takes what the forward
    pass freed; with an arena for each, as is glibc's way, memory was twice as large. Does nothing
    where there is no glibc, and where the user has set one of its variables (``MALLOC_…``).
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None  # this process itself
    is_set = any(name.startswith("MALLOC_") for name in os.environ)
    # musl's C library has no malloc_trim
    if library is None or not hasattr(library, "malloc_trim") or is_set:
        return
    library.mallopt(_ARENA_MAX, 1)  # one for all threads
    library.mallopt(_MMAP_MAX, 0)  # a large tensor's pages are no longer returned one by one
    library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)  # never returns the end of the heap by itself
    library.mallopt(_TOP_PAD, 2**26)  # grows by 64 MiB at a time


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that this process can still take of a device; None if nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        # "MemAvailable:   22334455 kB"
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvail")]
    with contextlib.suppress(OSError, ValueError):
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii")
        used = Path("/sys/fs/cgroup/memory.current").read_text("ascii")
        found.append(int(limit) - int(used))  # ValueError: "max", no limit
    return max(0, min(found)) if found else None


def choose_tokenizer(
    checkpoint: Pretrained | None,
    warm: Pretrained | None,
    data: TaskData,
    tasks: Mapping[str, Task],
) -> Tokenizer:
    """Return the tokenizer that the weights were trained with, or the one that data gives."""
    data.special_tokens = [each for task in tasks.values() for each in task.special_tokens]
    if checkpoint is not None and checkpoint.tokenizer is not None:
        found = checkpoint.tokenizer
    else:
        found = data.load_tokenizer() if warm is None else warm_tokenizer(warm, data)
    for name, task in tasks.items():
        found.require_special(task.special_tokens, name)
    return found


def build_module(
    config: RunConfig,
    data: TaskData,
    tasks: dict[str, Task],
    tokenizer: Tokenizer,
    checkpoint: Pretrained | None,
    warm: Pretrained | None,
) -> BertModule:
    """Return the checkpoint's module, or one with new weights, for tasks that have no layers yet.

    The data is prepared once all else that can be wrong is checked.
    """
    model = config.plain["model"]
    if checkpoint is not None and config.command != "fit":
        data.labels, data.head_labels = checkpoint.labels, checkpoint.head_labels
        _prepare(config, data)
        sets, metrics = data.evaluation_sets(), build_metrics(model)
        module = restore_module(checkpoint, config.plain, tasks, sets, metrics)
        check_lengths(data.max_seq_length, module.encoder)
        return module
    start = warm or checkpoint
    rows = tokenizer.vocab_size if start is None else start.vocab_size
    encoder = build_encoder(model["encoder"], rows)
    check_lengths(data.max_seq_length, encoder)
    optimizer = read_optimizer(model["optimizer"])
    _prepare(config, data)
    counts = None if config.command == "predict" else data.token_counts
    labels = data.labels, data.head_labels
    if start is not None and config.command != "fit":  # which learns the labels from its data
        labels = start.class_labels, {}
    context = TaskContext(encoder, tokenizer, counts, *labels)
    sets, metrics = data.evaluation_sets(), build_metrics(model)
    try:
        return BertModule(encoder, tasks, context, optimizer, sets, metrics, config.seeds.dropout)
    except DataError as error:  # of a head without labels
        if start is None or config.command == "fit" or labels[0] is not None:
            raise
        raise untrained(start.source, f"labels for {', '.join(tasks)}") from error


def _prepare(config: RunConfig, data: TaskData) -> None:
    """Read the data, which may take long; predictions bring their own."""
    if config.command != "predict":
        data.prepare(config.command)
