"""What bertlab-pages adds to runs and exports.

Loaded for ``bertlab --help`` as all hooks are: what is heavy is imported when it is asked for.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
    from jsonargparse import Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser

    from bertlab import Pretrained
    from bertlab.api import ExportReport, ModelAddress
    from bertlab.extend import Request


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add ``task_name`` and ``say_cost``, which change nothing that a run computes."""
    parser.add_argument(
        "--task_name",
        type=str | None,
        default=None,
        help="what run.html calls the task of a single head, such as sentiment",
    )
    parser.add_argument(
        "--say_cost",
        type=bool,
        default=True,
        help="time a few steps, and say what the run will take; not of a run of few steps",
    )
    return FitKeys(not_recorded=("task_name", "say_cost"))


# what the last command asks for, until another opens
_asked: "list[Request]" = []


@hookimpl
def bertlab_opens(command: str, request: "Request") -> None:
    """Keep what a new run of one stage asks for; leave the command to bertlab."""
    is_new = command == "fit" and request.ckpt_path is None
    _asked[:] = [request] if is_new and not {"stages", "seeds"} & {*request.values} else []


@hookimpl
def bertlab_callbacks(run_dir: Path, config: "Namespace") -> "list[Callback]":
    """Return what counts tokens, checks a found rate, draws, and keeps what the run predicts."""
    from bertlab.extend import can_draw  # noqa: PLC0415
    from bertlab_pages.loss_curve import LossCurve  # noqa: PLC0415
    from bertlab_pages.rate_finder import FoundLearningRate  # noqa: PLC0415
    from bertlab_pages.run_diagnosis import RunDiagnosis  # noqa: PLC0415
    from bertlab_pages.samples import SampleRows  # noqa: PLC0415
    from bertlab_pages.token_throughput import TokenThroughput  # noqa: PLC0415

    if _asked and config.say_cost:
        from bertlab_pages.say_cost import SayCost, plain_config  # noqa: PLC0415

        cost = [SayCost(plain_config(config, _asked[0]))]
        cost[0].before_data()
    else:
        cost = []
    found: list[Callback] = [
        TokenThroughput(),
        *cost,
        FoundLearningRate(run_dir),
        SampleRows(run_dir),
        RunDiagnosis(run_dir, config.task_name),
        LossCurve(run_dir),
    ]
    if can_draw():
        from bertlab_pages.step_bar import StepBar  # noqa: PLC0415

        found.append(StepBar())
    return found


@hookimpl
def bertlab_run_ended(
    run_dir: Path, results: dict[str, float], tables: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    """Write ``run.html``."""
    from bertlab_pages.run_page import write_run_page  # noqa: PLC0415

    write_run_page(run_dir, results, tables)


@hookimpl
def bertlab_export_files(
    folder: Path,
    model: "Pretrained",
    report: "ExportReport",
    loading_code: list[tuple[str, str]],
    address: "ModelAddress",
) -> None:
    """Write the model card."""
    from bertlab_pages.model_card import write_card  # noqa: PLC0415

    write_card(folder, model, report, loading_code, address)


@hookimpl
def bertlab_push(repository: str, private: bool) -> Callable[[Path, str | None], str]:
    """Return what uploads a folder to a repository of the Hugging Face hub."""
    from bertlab_pages.hub import Repository  # noqa: PLC0415

    return Repository(repository, private).push
