"""The parser of ``fit``, ``validate``, ``test`` and ``predict`` for the plugins of a request.

The arguments of a plugin's ``__init__`` become config keys here: of type, default and help as the
class has them.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
from jsonargparse import ActionConfigFile, ArgumentParser  # type: ignore[attr-defined]  # Lightning's way
from jsonargparse.typing import register_type
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.loggers import Logger
from torchmetrics import Metric

from bertlab.api.encoder import Adapter, Encoder
from bertlab.api.optimizer import Schedule
from bertlab.api.task import Head, Objective
from bertlab.api.tokenizer import TokenizerKind
from bertlab.config.named_classes import check_no_classes
from bertlab.config.request import SEED_SECTION, GivenSeeds, Request
from bertlab.data.fine_tuning import LabelledData
from bertlab.data.module import NO_KEYS, TaskData
from bertlab.data.pretraining import PretrainingData
from bertlab.data.sources import class_of_source
from bertlab.model.optimizer_config import PLUGGED_OPTIMIZER_KEYS, OptimizerConfig, load_recipe
from bertlab.plugins.hooks import add_fit_arguments, hook_modules, leave_out_hooks
from bertlab.plugins.index import Kind, installed, load_class, missing_package

TRAINER_DEFAULTS = {
    "gradient_clip_val": 1.0,
    "num_sanity_val_steps": 0,
    "max_epochs": -1,
    "enable_model_summary": False,
    "use_distributed_sampler": False,  # our loader deals the sequences out itself
}
# so that a class with a device among its arguments can be written as YAML
register_type(torch.device, str, torch.device, fail_already_registered=False)
LoggerName = Literal["csv", "tensorboard", "wandb", "mlflow"]
LoggerChoice = bool | LoggerName | Logger | list[LoggerName | Logger] | None
CHECKPOINT_DEFAULTS = {
    "filename": "step-{step}",
    "auto_insert_metric_name": False,
    "monitor": "auto",  # the head's metric; val/loss of objectives
    "mode": "auto",  # the better end of that metric
    "save_last": True,
    "enable_version_counter": False,  # last.ckpt is the last, in a moved run too
}


# of fine-tuning (paper app. A.3: 2e-5 to 5e-5); 1e-4 and 1 % of warm-up are pre-training's
HEAD_DEFAULTS = {"learning_rate": 3e-5, "warmup_steps": 0.1}


@dataclass
class _KeysOfFit:
    """Where a run is kept, and how long it is.

    Args:
        run_dir: directory of the run; by default runs/NAME of the config, finetune-NAME with a head
        max_tokens: train on about so many tokens, instead of trainer.max_steps
        max_words: train on about so many words of the text, instead of trainer.max_steps;
            trainer.max_epochs limits how often the corpus is read for them
        on_nonfinite: what to do at a step whose gradient is NaN or infinite; it is never taken
        compile: compile the encoder's layers with torch.compile, and on one GPU in bf16 replay
            steps as CUDA graphs; needs a C++ compiler or a GPU
        keep_predictions: write what the last step predicts for the validation rows:
            predictions.jsonl
        without_hooks: packages whose hooks are not called, by name, such as bertlab-pages
    """

    run_dir: str | None = None
    max_tokens: float | None = None
    max_words: float | None = None
    on_nonfinite: Literal["stop", "skip"] = "stop"
    compile: bool = False
    keep_predictions: bool = False
    without_hooks: list[str] | str | None = None


@dataclass
class _KeysOfPredict:
    """Where predictions go.

    Args:
        output: write the predictions to this file
        top_k: how many classes, answers or fillers of a [MASK] are written for each row, best
            first; all classes and answers, and 5 fillers, if not given
        output_format: jsonl, csv, tsv, parquet, or the form that a benchmark takes, by the name of
            its data.format; auto goes by the ending of the output, and is jsonl for any other
    """

    output: str | None = None
    top_k: int | None = None
    output_format: str = "auto"


def data_class(request: Request) -> type[TaskData]:
    """Return the DataModule of a request.

    That is labelled rows for a head, those of each of several heads, or unlabelled text.

    Raises:
        PluginError: nothing is installed for several heads, or for transforms of rows.
    """
    if request.heads or request.transforms:
        name = "transformed_rows" if request.transforms else "several_heads"
        return load_class("data_module", name, TaskData)
    return PretrainingData if request.head is None else LabelledData


def build_parser(
    command: str, request: Request, with_hooks: bool = True
) -> LightningArgumentParser:
    """Return a parser of all keys that a command takes with the plugins of a request.

    ``with_hooks``: those that packages add to ``fit``, too, whose modules are imported for it.
    """
    if with_hooks:
        leave_out_hooks(request.without_hooks)
    parser = LightningArgumentParser(exit_on_error=False, prog=f"bertlab {command}")
    parser.add_argument("-c", "--config", action=ActionConfigFile, help="a config file, or a name")
    add_seed_keys(parser)
    add_core_keys(parser, request)
    add_keys_of_command(parser, command, with_hooks)
    return parser


def add_seed_keys(parser: LightningArgumentParser) -> None:
    """Add the seed of a run, and those of its parts."""
    parser.add_argument(
        "--seed_everything",
        type=bool | int,
        default=True,
        help="seed of the run; true draws one and records it",
    )
    parser.add_class_arguments(GivenSeeds, SEED_SECTION, instantiate=False)


def add_core_keys(parser: LightningArgumentParser, request: Request) -> None:
    """Add the keys of Trainer, of the plugins of a request, and of data."""
    parser.add_class_arguments(
        Trainer,
        "trainer",
        fail_untyped=False,
        instantiate=False,
        sub_configs=True,
        skip={"logger", "accumulate_grad_batches", "max_time"},
    )
    parser.add_argument(
        "--trainer.accumulate_grad_batches",
        type=int | Literal["auto"],
        default=1,
        help="parts that a device computes a step in, one after the other, with less memory; auto: "
        "as few as fit into memory, and trainer.val_check_interval counts steps",
    )
    parser.add_argument(
        "--trainer.logger",
        type=LoggerChoice,
        default=None,
        help="trackers beside the CSV and TensorBoard files of the run: wandb, mlflow, a class, or "
        "a list of these; false for no logs at all",
    )
    words = "stop after this time: {hours: 8, minutes: 30} or 00:08:30:00 (days first)"
    parser.add_argument("--trainer.max_time", type=timedelta | None, default=None, help=words)
    parser.set_defaults({f"trainer.{key}": value for key, value in TRAINER_DEFAULTS.items()})
    _add_model(parser, request)
    _add_data(parser, request)


def add_keys_of_command(
    parser: LightningArgumentParser, command: str, with_hooks: bool = True
) -> None:
    """Add the keys of a command alone, and those that packages add to ``fit``."""
    if command == "fit":
        parser.add_class_arguments(
            ModelCheckpoint, "checkpoint", fail_untyped=False, instantiate=False, sub_configs=True
        )
        defaults = {f"checkpoint.{key}": value for key, value in CHECKPOINT_DEFAULTS.items()}
        parser.set_defaults(defaults)
        parser.add_class_arguments(_KeysOfFit, None, as_group=False, instantiate=False)
    if command == "fit" and with_hooks:
        hook_modules().fit_keys = add_fit_arguments(parser)
    parser.add_argument(
        "--ckpt_path",
        type=str | None,
        default=None,
        help="a run directory or checkpoint to continue (fit) or to use; last: this config's",
    )
    if command != "fit":
        parser.add_argument(
            "--head",
            type=str | None,
            default=None,
            help="of a run with several heads (model.heads) the one that is meant",
        )
    if command != "fit" and missing_package("backend") is None:  # which takes the command over
        text = "onnx: compute with onnxruntime, from the folder of an ONNX export"
        parser.add_argument("--backend", type=str | None, default=None, help=text)
    if command == "predict":
        parser.add_class_arguments(_KeysOfPredict, None, as_group=False, instantiate=False)


@dataclass
class _Start:
    """What a model begins with.

    Args:
        init_from: warm start: weights of a run, a Hugging Face folder or a hub name
        init_optimizer: take over the moments of the run in model.init_from as well; its schedule
            goes on where model.optimizer.schedule_steps is given
        from_scratch: take sizes and tokenizer of model.init_from, but new random weights
    """

    init_from: str | None = None
    init_optimizer: bool = False
    from_scratch: bool = False


def _add_model(parser: LightningArgumentParser, request: Request) -> None:
    """Add the named encoder, its objectives or head, and the optimiser."""
    _add_plugin(parser, "model.encoder", "encoder", request.encoder, Encoder)
    given = request.sizes
    if given is not None and given["name"] == request.encoder:
        check_no_classes(parser, {"model": {"encoder": given}}, "the given weights")
        parser.set_defaults({f"model.encoder.{key}": value for key, value in given.items()})
    for name in request.objectives:
        objective = load_class("objective", name, Objective)
        parser.add_class_arguments(objective, f"model.objectives.{name}", instantiate=False)
    for key, name in request.head_sections.items():
        _add_plugin(parser, key, "head", name, Head)
    _add_plugin(parser, "model.adapter", "adapter", request.adapter, Adapter)
    for name in request.metrics:
        metric = load_class("metric", name, Metric)
        parser.add_class_arguments(metric, f"model.metrics.{name}", instantiate=False)
    _add_optimizer(parser, request)
    parser.add_class_arguments(_Start, "model", as_group=False, instantiate=False)


def _add_optimizer(parser: LightningArgumentParser, request: Request) -> None:
    """Add the named optimiser's arguments, those of every optimiser, and its schedule's."""
    section = "model.optimizer"
    parser.add_class_arguments(
        OptimizerConfig, section, instantiate=False, skip=set(PLUGGED_OPTIMIZER_KEYS)
    )
    if request.fine_tunes:
        parser.set_defaults({f"{section}.{key}": each for key, each in HEAD_DEFAULTS.items()})
    parser.add_argument(
        f"--{section}.name",
        default=request.optimizer,
        help=f"optimizer: {', '.join(installed('optimizer'))}, or a class of torch.optim",
    )
    parser.add_class_arguments(
        load_recipe(request.optimizer), section, instantiate=False, as_group=False
    )
    words = "what follows warm-up"
    _add_plugin(parser, f"{section}.schedule", "schedule", request.schedule, Schedule, words)


def _add_plugin(
    parser: LightningArgumentParser,
    key: str,
    kind: Kind,
    name: str | None,
    base: type,
    words: str = "",
) -> None:
    """Add the name of a plugin and, if one is named, its arguments."""
    parser.add_argument(
        f"--{key}.name",
        type=str | None,
        default=name,
        help=f"{words or kind}: {', '.join(installed(kind))}",
    )
    if name is not None:
        # an encoder's comes from the tokenizer
        linked = {"vocab_size"} if kind == "encoder" else None
        chosen: type = load_class(kind, name, base)
        parser.add_class_arguments(chosen, key, instantiate=False, skip=linked)


def add_source(parser: ArgumentParser, key: str, location: str) -> None:
    """Add the source of a text, and its settings, below a key."""
    text = f"source of the text: {', '.join(installed('source'))}"
    parser.add_argument(f"--{key}.source", type=str, default=location, help=text)
    given, source = {"name", "argument"}, class_of_source(location)[0]
    parser.add_class_arguments(source, key, instantiate=False, skip=given)


def _add_data(parser: LightningArgumentParser, request: Request) -> None:
    """Add the data and, for text, the kind of tokenizer that is trained on it."""
    data, location = data_class(request), request.corpus_source
    for name in request.transforms:
        transform = load_class("transform", name, object)
        parser.add_class_arguments(transform, f"data.transforms.{name}", instantiate=False)
    if data is not PretrainingData:
        data.add_arguments(parser, list(request.heads), request.objectives)
        return
    # the keys below data.corpus take the place of the key itself
    skip = NO_KEYS | ({"corpus"} if location else set())
    parser.add_class_arguments(data, "data", instantiate=False, skip=skip)
    if location:
        add_source(parser, "data.corpus", location)
    words = "tokenizer to train, wordpiece by default"
    _add_plugin(parser, "data.tokenizer_kind", "tokenizer", request.tokenizer, TokenizerKind, words)
