"""What bertlab-conformance adds to ``fit``: mistakes in its arguments are told at once."""

import sys
from typing import TYPE_CHECKING

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
    from jsonargparse import Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser

    from bertlab.extend import Opened, Request

# of the command that runs: what it asks for, and the parser that was made last
_asked: "list[Request]" = []
_made: "list[LightningArgumentParser]" = []


@hookimpl
def bertlab_opens(command: str, request: "Request") -> "Opened | None":
    """Refuse what the keys of an earlier run show to be wrong; leave the command to bertlab."""
    from bertlab_conformance.known_keys import (  # noqa: PLC0415  not for --help
        check_known_keys,
        check_plugin_names,
    )

    _asked.clear()
    _made.clear()
    if command == "fit":
        from bertlab_conformance.told_early import check_filled_in  # noqa: PLC0415

        check_plugin_names(request)
        if "torch" not in sys.modules:  # else the parser tells the rest as soon
            check_known_keys(request)
        check_filled_in(request)
        _asked.append(request)
    if "torch" not in sys.modules:
        from bertlab_conformance.early_paths import check_places  # noqa: PLC0415

        check_places(command, request)
    return None


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add nothing; the parser has all keys when the run begins."""
    _made[:] = [parser]
    return FitKeys()


@hookimpl
def bertlab_callbacks(config: "Namespace") -> "list[Callback]":
    """Keep the keys of the run that begins; ask whether labels are numbers to predict."""
    from bertlab_conformance.known_keys import write_record  # noqa: PLC0415

    if _asked and _made:
        write_record(_asked.pop(), _made.pop())
    if (config.model.get("head") or {}).get("regression") is False:
        from bertlab_conformance.number_labels import AskForRegression  # noqa: PLC0415

        return [AskForRegression()]
    return []
