"""The keys of ``fit`` that score a run along its way, and the callbacks that read them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonargparse import Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add ``evaluations``, ``evaluate_every`` and ``checkpoint_words``."""
    parser.add_argument(
        "--evaluations",
        type=dict[str, dict[str, Any]] | None,
        default=None,
        help="score the model without training it, by name: {blimp: {evaluation: minimal_pairs, "
        "data: PATH}}",
    )
    parser.add_argument(
        "--evaluate_every",
        type=int | None,
        default=None,
        help="steps from one of these to the next, a multiple of those between two looks at the "
        "held-out text (trainer.val_check_interval); by default they follow each look",
    )
    parser.add_argument(
        "--checkpoint_words",
        type=list[float] | None,
        default=None,
        help="numbers of words to write a checkpoint after: checkpoints/words-1M.ckpt",
    )
    return FitKeys(
        stored=("evaluations", "evaluate_every", "checkpoint_words"),
        not_in_stages={"checkpoint_words": "a stage counts its own words only"},
        check_stored=_check_stored,
        as_recorded=_as_recorded,
    )


def _as_recorded(config: dict[str, Any]) -> dict[str, Any]:
    """Place ``checkpoint_words`` where configs of before have it, behind ``max_words``."""
    if "checkpoint_words" not in config:
        return config
    words = config.pop("checkpoint_words")
    pairs = list(config.items())
    place = list(config).index("max_words") + 1
    return dict([*pairs[:place], ("checkpoint_words", words), *pairs[place:]])


def _check_stored(config: "Mapping[str, Any]", source: str) -> None:
    if config.get("evaluations"):
        from bertlab_evaluations.entries import check_entries  # noqa: PLC0415  not for --help

        check_entries(config["evaluations"], source)


@hookimpl
def bertlab_callbacks(run_dir: Path, config: "Namespace") -> "list[Callback]":
    """Return the callbacks that the keys ask for, and what describes the training text."""
    from bertlab_evaluations.along_training import along_training  # noqa: PLC0415  torch
    from bertlab_evaluations.domain import TrainingParts  # noqa: PLC0415
    from bertlab_evaluations.word_checkpoints import WordCheckpoints  # noqa: PLC0415

    callbacks: list[Callback] = [TrainingParts(), *along_training(run_dir, config)]
    if words := config.checkpoint_words:
        folder = Path(config.checkpoint.dirpath or run_dir / "checkpoints")
        callbacks.append(WordCheckpoints(folder, words))
    return callbacks
