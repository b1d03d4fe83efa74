"""What a bug of ours leaves behind: a file that can be sent to us as it is."""

import datetime
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from bertlab import __version__
from bertlab.checkpoints.run_directory import manifest
from bertlab.errors import without_secrets

_MAX_SHOWN = 300  # characters of the message; the report has all


def write_crash_report(error: BaseException, arguments: Sequence[str]) -> Path:
    """Write traceback, command and versions to the working directory, or the temporary one."""
    seen = manifest({"plugins": _plugin_packages()})
    text = "\n".join(
        [
            f"bertlab {__version__}, {seen['started']}",
            f"command: bertlab {shlex.join(arguments)}",  # in quotes, to be pasted
            f"python {seen['python']} on {seen['platform']}",
            *(f"{name} {version}" for name, version in seen["packages"].items()),
            *(f"plugins of {name} {version}" for name, version in seen["plugins"].items()),
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    name = f"bertlab-crash-{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-"
    try:
        return _write(text, name, Path.cwd())
    except OSError:
        return _write(text, name, None)


def explain_bug(error: BaseException, arguments: Sequence[str]) -> str:
    """Write the report, and return the line that says so."""
    words = " ".join(str(error).split())[:_MAX_SHOWN]
    said = f"{type(error).__name__}: {words}" if words else type(error).__name__
    try:
        where = f" with {write_crash_report(error, arguments)}"
    except OSError:  # no place left at all
        traceback.print_exception(error, file=sys.stderr)
        where = ""
    return f"{said}: this is a bug of bertlab's or a plugin's, please report it{where}"


def _write(text: str, prefix: str, folder: Path | None) -> Path:
    # a name of its own: several processes of one run may crash in the same second
    with tempfile.NamedTemporaryFile(
        prefix=prefix, suffix=".txt", dir=folder, delete=False
    ) as file:
        file.write(without_secrets(text).encode("utf-8", "backslashreplace"))
    return Path(file.name)


def _plugin_packages() -> dict[str, str]:
    """Return the other packages that have plugins, with their versions."""
    try:
        # in here, as it may be what is broken
        from bertlab.plugins.index import FIRST_PARTY, GROUPS, listed  # noqa: PLC0415

        found = [plugin for kind in GROUPS for plugin in listed(kind)]
    except Exception:  # a report without them is better than none
        return {"unknown": "packages"}
    return {each.package: each.version for each in found if each.package not in FIRST_PARTY}
