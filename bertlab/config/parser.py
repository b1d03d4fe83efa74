"""The arguments of ``fit``, ``validate`` and ``predict``, for the plugins that a config names."""

from typing import Literal

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser
from torchmetrics import Metric

from bertlab.api.encoder import Encoder
from bertlab.api.head import Head
from bertlab.api.task import Objective
from bertlab.config.compose import Composition
from bertlab.config.yaml_files import Config
from bertlab.data.fine_tuning import LabelledData
from bertlab.data.module import TaskData
from bertlab.data.pretraining import PretrainingData
from bertlab.model.optimizer import AdamWConfig
from bertlab.plugins.index import installed, load_class

TRAINER_DEFAULTS = {
    "gradient_clip_val": 1.0,
    "num_sanity_val_steps": 0,
    "max_epochs": -1,
    "enable_model_summary": False,
    "use_distributed_sampler": False,  # our loader deals the sequences out itself
}
CHECKPOINT_DEFAULTS = {
    "filename": "step-{step}",
    "auto_insert_metric_name": False,
    "monitor": "auto",  # the head's metric; val/loss of objectives
    "save_last": True,
    "enable_version_counter": False,  # last.ckpt is the last, in a moved run too
}


def add_trainer(parser: LightningArgumentParser) -> None:
    """Add Lightning's Trainer with our defaults."""
    parser.add_lightning_class_args(Trainer, "trainer")
    parser.set_defaults({f"trainer.{key}": value for key, value in TRAINER_DEFAULTS.items()})


def add_model(parser: LightningArgumentParser, plan: Composition, given: Config | None) -> None:
    """Add the named encoder, its objectives or head, and the optimiser.

    Args:
        parser: added to.
        plan: names the plugins, which are imported here.
        given: the encoder that the weights are of, with its ``name``: it becomes the default.
    """
    encoder = load_class("encoder", plan.encoder, Encoder)
    parser.add_argument(
        "--model.encoder.name",
        default=plan.encoder,
        help=f"encoder: {', '.join(installed('encoder'))}",
    )
    parser.add_class_arguments(encoder, "model.encoder", instantiate=False, skip={"vocab_size"})
    if given is not None and given["name"] == plan.encoder:
        parser.set_defaults({f"model.encoder.{key}": value for key, value in given.items()})
    for name in plan.objectives:
        objective = load_class("objective", name, Objective)
        parser.add_class_arguments(objective, f"model.objectives.{name}", instantiate=False)
    if plan.head is not None:
        parser.add_argument(
            "--model.head.name", default=plan.head, help=f"head: {', '.join(installed('head'))}"
        )
        head = load_class("head", plan.head, Head)
        parser.add_class_arguments(head, "model.head", instantiate=False)
    for name in plan.metrics:
        metric = load_class("metric", name, Metric)
        parser.add_class_arguments(metric, f"model.metrics.{name}", instantiate=False)
    parser.add_class_arguments(AdamWConfig, "model.optimizer", instantiate=False)
    parser.add_argument(
        "--model.init_from",
        type=str | None,
        default=None,
        help="warm start: weights of a run, a Hugging Face folder or a hub name",
    )
    parser.add_argument(
        "--model.init_optimizer",
        type=bool,
        default=False,
        help="go on with AdamW's moments and the schedule of the run in model.init_from as well",
    )
    parser.add_argument(
        "--model.from_scratch",
        type=bool,
        default=False,
        help="take sizes and tokenizer of model.init_from, but new random weights",
    )


def data_class(plan: Composition) -> type[TaskData]:
    """Return the DataModule of the plan: labelled rows for a head, else unlabelled text."""
    return PretrainingData if plan.head is None else LabelledData


def add_data(parser: LightningArgumentParser, plan: Composition) -> None:
    """Add the data; its seed is the run's."""
    parser.add_class_arguments(data_class(plan), "data", instantiate=False, skip={"seed"})


def add_run(parser: LightningArgumentParser, command: str) -> None:
    """Add where a run is kept, what it goes on with, and where predictions go."""
    if command == "fit":
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults(
            {f"checkpoint.{key}": value for key, value in CHECKPOINT_DEFAULTS.items()}
        )
        parser.add_argument(
            "--run_dir",
            type=str | None,
            default=None,
            help="directory of the run; by default runs/NAME-OF-THE-CONFIG",
        )
        parser.add_argument(
            "--max_tokens",
            type=float | None,
            default=None,
            help="train on about so many tokens, instead of trainer.max_steps",
        )
        parser.add_argument(
            "--on_nonfinite",
            type=Literal["stop", "skip"],
            default="stop",
            help="what to do at a step whose gradient is NaN or infinite; it is never taken",
        )
        parser.add_argument(
            "--compile",
            type=bool,
            default=False,
            help="compile the encoder's layers with torch.compile; needs a C++ compiler or a GPU",
        )
        parser.add_argument(
            "--seeds",
            type=int | list[int] | None,
            default=None,
            help="repeat with seeds 1 … N, or those listed; print mean and deviation",
        )
        parser.add_argument(
            "--against_scratch",
            type=bool,
            default=False,
            help="also run from new random weights; print both beside each other",
        )
        parser.add_argument(
            "--keep_predictions",
            type=bool,
            default=False,
            help="write what the last step predicts for the validation rows: predictions.jsonl",
        )
    parser.add_argument(
        "--ckpt_path",
        type=str | None,
        default=None,
        help="a run directory or checkpoint to go on with (fit) or to use; last: this config's",
    )
    if command == "predict":
        parser.add_argument(
            "--output", type=str | None, default=None, help="write the predictions to this file"
        )
        parser.add_argument(
            "--output_format",
            type=str,
            default="jsonl",
            help="jsonl, or the form that a benchmark takes, by the name of its data.format",
        )
