"""What this package adds to ``bertlab fit``: ``--seeds``, ``--against_scratch``, trackers."""

from pathlib import Path
from typing import TYPE_CHECKING

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
    from jsonargparse import Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add the keys that repeat a run."""
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
    return FitKeys(not_recorded=("seeds", "against_scratch"))


@hookimpl
def bertlab_runs_fit(arguments: list[str], keys: frozenset[str]) -> int | None:
    """Repeat a run where a key asks for it."""
    if keys.isdisjoint(("seeds", "against_scratch")):
        return None
    from bertlab.extend import read_request  # noqa: PLC0415  a plain fit does without
    from bertlab_studies.repeat import find_repetition, fit_repeatedly  # noqa: PLC0415

    repetition = find_repetition(arguments, read_request(arguments))
    return None if repetition is None else fit_repeatedly(repetition)


@hookimpl
def bertlab_callbacks(run_dir: Path, config: "Namespace") -> "list[Callback]":
    """Return what the config's ``LearningRateFinder`` and trackers need."""
    from bertlab_studies.found_rate import FoundLearningRate  # noqa: PLC0415  torch, not for --help

    found: list[Callback] = [FoundLearningRate()]
    given = config.trainer.logger
    if given not in (None, False):
        from bertlab_studies.trackers import TRACKERS, Trackers  # noqa: PLC0415

        listed = given if isinstance(given, list) else [given]
        # a name twice is one logger
        named = [name for name in TRACKERS if name in listed]
        found.append(Trackers(named, run_dir, int(config.seed_everything)))
    return found


@hookimpl
def bertlab_run_ended() -> None:
    """Close what the run has open."""
    from bertlab_studies.trackers import close_trackers  # noqa: PLC0415

    close_trackers()
