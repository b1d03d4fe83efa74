"""What this package adds to ``bertlab fit``: ``--seeds`` and ``--against_scratch``."""

from typing import TYPE_CHECKING

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
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
