"""What this package adds to ``fit``: ``seeds``, ``against_scratch``, ``stages``, trackers."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab import FitKeys, hookimpl
from bertlab.extend import STUDY_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jsonargparse import ArgumentParser, Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser

    from bertlab.extend import Opened, Request
    from bertlab_studies.execute.contract import Elsewhere


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add the keys that repeat a run, and that divide it into stages."""
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
        "--stages",
        type=dict[str, dict[str, Any]] | list[dict[str, Any]] | None,
        default=None,
        help="pre-train in stages, by name: a share of the budget, and settings: "
        "{short: {share: 0.9, data.max_seq_length: 128}, long: {share: 0.1}}; the last may "
        "fine-tune: {head: single_sentence, data.source: FILE, trainer.max_epochs: 3}",
    )
    return FitKeys(
        not_recorded=("seeds", "against_scratch"),
        stored=("stages",),  # of their settings those that a config without stages may bring
        check_stored=_check_stored,
        as_recorded=_as_recorded,
    )


@hookimpl
def bertlab_prepare(parser: "ArgumentParser", argv: "Sequence[str]") -> "Elsewhere":
    """Let an executor tokenise."""
    from bertlab_studies.execute.contract import add_prepare_options  # noqa: PLC0415  of prepare

    return add_prepare_options(parser, argv)


def _check_stored(config: "Mapping[str, Any]", source: str) -> None:
    if config.get("stages") is not None:
        from bertlab_studies.plan.stages import check_stored_stages  # noqa: PLC0415  rare

        check_stored_stages(config, source)


def _as_recorded(config: dict[str, Any]) -> dict[str, Any]:
    """Leave ``stages`` out where there are none; else as a list, in their order."""
    stages = config.pop("stages", None)
    if stages is None:
        return config
    from bertlab_studies.plan.stages import read_stages  # noqa: PLC0415  rare

    return config | {"stages": [stage.to_dict() for stage in read_stages(stages)]}


@hookimpl
def bertlab_opens(command: str, request: "Request") -> "Opened | None":
    """Repeat a run, or train it in stages, where a key or the run that goes on asks for it."""
    values, fits = request.values, command == "fit"
    if fits and not {"seeds", "against_scratch"}.isdisjoint(values):
        from bertlab_studies.repeat import RepeatedFit, asks_for_runs  # noqa: PLC0415  rare

        if asks_for_runs(request):
            return RepeatedFit(request)
    if values.get("stages") is not None and not fits:
        from bertlab_studies.staged_run import open_last_stage  # noqa: PLC0415  rare

        return open_last_stage(command, request)
    if fits and (request.ckpt_path is not None or values.get("stages") is not None):
        from bertlab_studies.staged_run import open_stages  # noqa: PLC0415  torch

        return open_stages(request)
    return None


@hookimpl
def bertlab_callbacks(run_dir: Path, config: "Namespace") -> "list[Callback]":
    """Return what trackers and a study need."""
    found: list[Callback] = []
    given = config.trainer.logger
    if given not in (None, False):
        from bertlab_studies.trackers import TRACKERS, Trackers  # noqa: PLC0415

        listed = given if isinstance(given, list) else [given]
        # a name twice is one logger
        named = [name for name in TRACKERS if name in listed]
        found.append(Trackers(named, run_dir, int(config.seed_everything)))
    if STUDY_ENVIRONMENT in os.environ:  # a run of a study
        from bertlab_studies.held_out_rows import HeldOutRows  # noqa: PLC0415

        found.append(HeldOutRows(run_dir))
    return found


@hookimpl
def bertlab_run_ended() -> None:
    """Close what the run has open."""
    from bertlab_studies.trackers import close_trackers  # noqa: PLC0415

    close_trackers()
