"""What bertlab-conformance adds to commands: mistakes in arguments are told at once."""

import atexit
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from bertlab import FitKeys, hookimpl

if TYPE_CHECKING:
    from jsonargparse import Namespace
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser

    from bertlab.extend import Opened, Request

# of the command that runs: its name, what it asks for, and the parser that was made last
_asked: "list[tuple[str, Request]]" = []
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
    record = None
    if command == "fit":
        from bertlab_conformance.told_early import check_filled_in  # noqa: PLC0415

        check_plugin_names(request)
        if "torch" not in sys.modules:  # else the parser tells the rest as soon
            record = check_known_keys(request)
        check_filled_in(request)
        _asked.append((command, request))
        if record is None:
            atexit.register(_keep_of_failed_parse)
    if "torch" in sys.modules:
        return None
    from bertlab_conformance.early_paths import (  # noqa: PLC0415
        check_data,
        check_model_place,
        check_run_folder,
    )
    from bertlab_conformance.stored_run import with_stored_config  # noqa: PLC0415

    check_model_place(command, request)
    used: Request | None = request
    if command != "fit":
        used = with_stored_config(request, command)
        if used is not None:
            record = check_known_keys(used, command)
            used.check_scored(command)
            _asked.append((command, used))
    check_data(command, used or request, {} if record is None else record.columns)
    check_run_folder(request)
    return None


@hookimpl
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys:
    """Add nothing; the parser of ``fit`` has all keys when the run begins.

    Other commands ask for these keys when they have parsed their own, which are kept then.
    """
    _made[:] = [parser]
    if _asked and _asked[0][0] != "fit":
        from bertlab.extend import build_parser  # noqa: PLC0415
        from bertlab_conformance.known_keys import read_record, write_record  # noqa: PLC0415

        command, request = _asked.pop()
        if read_record(request, command) is None:
            write_record(request, build_parser(command, request, with_hooks=False), command)
    return FitKeys()


def _keep_of_failed_parse() -> None:
    """Keep the keys of a ``fit`` whose parse failed, so that its next mistake is told at once."""
    atexit.unregister(_keep_of_failed_parse)
    if not _asked or not _made or _asked[0][0] != "fit":
        return
    from bertlab.extend import build_parser  # noqa: PLC0415
    from bertlab_conformance.known_keys import write_record  # noqa: PLC0415

    request = _asked.pop()[1]
    with suppress(Exception):  # what is wrong was told; anew, as the one that failed may lack keys
        write_record(request, build_parser("fit", request))


@hookimpl
def bertlab_callbacks(config: "Namespace") -> "list[Callback]":
    """Keep the keys of the run that begins; ask whether labels are numbers to predict."""
    from bertlab_conformance.known_keys import write_record  # noqa: PLC0415

    if _asked and _made:
        write_record(_asked.pop()[1], _made.pop())
    if (config.model.get("head") or {}).get("regression") is False:
        from bertlab_conformance.number_labels import AskForRegression  # noqa: PLC0415

        return [AskForRegression()]
    return []
