"""The key ``schedules`` of ``fit``, values that change over a run; adapters where a model goes."""

from typing import TYPE_CHECKING, Any

from bertlab import CommandError, FitKeys, hookimpl

if TYPE_CHECKING:
    from jsonargparse import Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser

    from bertlab.extend import Request
    from bertlab_modern.adapter_command import OpenedAdapter


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add ``schedules``."""
    parser.add_argument(
        "--schedules",
        type=dict[str, dict[str, Any]] | None,
        default=None,
        help="values that change over the run, of the optimizer and of tasks: "
        "{optimizer: {weight_decay: {from: 0.1, to: 0.01, schedule: cosine}}, TASK: {…}}",
    )
    return FitKeys(stored=("schedules",), as_recorded=_as_recorded, decides=("schedules",))


@hookimpl
def bertlab_callbacks(config: "Namespace") -> "list[Callback]":
    """Return what sets the values before each step."""
    if not config.schedules:
        return []
    from bertlab_modern.scheduled_values import ScheduledValues  # noqa: PLC0415  torch

    return [ScheduledValues(config.schedules)]


@hookimpl
def bertlab_opens(command: str, request: "Request") -> "OpenedAdapter | None":
    """Use an adapter with its base, where ``--ckpt_path`` names one."""
    if not (request.ckpt_path or "").endswith(".adapter"):
        return None
    if command == "fit":
        raise CommandError(
            f"--ckpt_path: {request.ckpt_path} is an adapter, which fit does not continue; "
            "expected the run, or bertlab adapter --join and --model.init_from"
        )
    from bertlab_modern.adapter_command import OpenedAdapter  # noqa: PLC0415  rare

    return OpenedAdapter(command, request)


def _as_recorded(config: dict[str, Any]) -> dict[str, Any]:
    """Leave the key out where it is not given; a schedule is named as briefly as may be."""
    found = {key: each for key, each in config.items() if key != "schedules" or each}
    if "schedules" in found:
        found["schedules"] = _in_short(found["schedules"])
    return found


def _in_short(given: Any) -> Any:  # noqa: ANN401  of a config
    """Return schedules with ``schedule: cosine`` in place of ``schedule: {name: cosine}``."""
    if not isinstance(given, dict):
        return given
    short = {key: _in_short(each) for key, each in given.items()}
    match given.get("schedule"):
        case {"name": str(name), **rest} if not rest:
            short["schedule"] = name
    return short
