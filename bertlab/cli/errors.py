"""``bertlab explain CODE``: what the code in front of an error message means, and what to do.

What a bug of ours leaves behind: a file that can be sent to us as it is.
"""

import datetime
import inspect
import shlex
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertlab import __version__
from bertlab.checkpoints.run_directory import manifest
from bertlab.errors import BertlabError, CommandError, nearest, say, without_secrets
from bertlab.plugins.index import entry_points_of


def catalogue() -> dict[str, type[BertlabError]]:
    """Return our error classes by code, in the order of the codes."""
    own = {each.code: each for each in _own(BertlabError)}
    added = {each.name: each.load() for each in entry_points_of("bertlab.errors")}
    return dict(sorted({**added, **own}.items()))


def _own(kind: type[BertlabError]) -> Iterator[type[BertlabError]]:
    if kind.__module__ == BertlabError.__module__:  # a plugin's own has the code of its base
        yield kind
    for each in kind.__subclasses__():
        yield from _own(each)


def main(command: str, argv: list[str]) -> int:
    """Print the entry of a code, or all codes."""
    known = catalogue()
    if not argv or "-h" in argv or "--help" in argv:
        lines = (f"  {code}  {meaning(each)[0]}\n" for code, each in known.items())
        say(f"usage: bertlab {command} CODE\n\n{''.join(lines)}")
        return 0
    if len(argv) > 1 or argv[0].upper() not in known:
        found = " ".join(argv)
        raise CommandError(
            f"explain: found {found!r}{nearest(found.upper(), known)} "
            f"(there are: {', '.join(known)})"
        )
    error = known[argv[0].upper()]
    paragraphs = [f"{error.code}: {meaning(error)[0]}", *meaning(error)[1:], error.remedy]
    say("\n\n".join(textwrap.fill(each, 100) for each in paragraphs))
    return 0


def meaning(error: type[BertlabError]) -> list[str]:
    """Return the paragraphs of an error's docstring."""
    text = inspect.cleandoc(error.__doc__ or "")
    return [" ".join(each.split()) for each in text.split("\n\n")]


_MAX_SHOWN = 300  # characters of the message; the report has all


def write_crash_report(error: BaseException, arguments: Sequence[str]) -> Path:
    """Write the traceback, the command and the versions, to be read before it is sent.

    Returns:
        The file, in the working directory, or in the temporary one if that cannot be written.
    """
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
        "w",
        encoding="utf-8",
        errors="backslashreplace",
        prefix=prefix,
        suffix=".txt",
        dir=folder,
        delete=False,
    ) as file:
        file.write(without_secrets(text))
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
