"""The key ``check_every`` of ``fit``, the callback that reads it, and warnings of losses."""

from typing import TYPE_CHECKING

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
    from jsonargparse import Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add ``check_every``, which changes nothing that a run computes."""
    parser.add_argument(
        "--check_every",
        type=int,
        default=500,
        help="steps from one that is computed again, to see whether its bits are the same, to the "
        "next; on a CPU in one process only; 0 for none",
    )
    return FitKeys(not_recorded=("check_every",))


@hookimpl
def bertlab_callbacks(config: "Namespace") -> "list[Callback]":
    """Return warnings of losses, and the audit of steps.

    No step is audited where callbacks of the user's may change weights between two.
    """
    from bertlab_guard.loss_watch import LossWatch  # noqa: PLC0415  torch, not for --help
    from bertlab_guard.step_audit import step_audit  # noqa: PLC0415

    return [LossWatch(), *step_audit(config.check_every, bool(config.trainer.callbacks))]
