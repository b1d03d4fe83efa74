"""Whose code raised an error.

bertlab calls strangers' code in every step. Its errors are not bugs of bertlab, and who can mend
them is named: package, version, file and line.
"""

import re
import traceback
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import NamedTuple

import bertlab
from bertlab.extend import FIRST_PARTY, GROUPS, PluginCodeError, homes, listed, targets, told

_OWN_MODULES = ("bertlab", *(package.replace("-", "_") for package in FIRST_PARTY))
_OWN_FOLDER = Path(bertlab.__file__).parent
# rooms that plugins do not call: an error that arises there is ours, whoever is further out
_CORE = ("checkpoints", "cli", "config", "data", "model", "training")
_NOT_THEIRS = ("OutOfMemoryError", "MemoryError")
# of a data worker, whose traceback comes as text
_WORKER = "Original Traceback (most recent call last)"
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


class _Place(NamedTuple):
    """A line on the way to an error, and the object whose method it stands in."""

    file: Path
    line: int
    function: str
    owner: object = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}"


def mistake_of_others(error: BaseException) -> PluginCodeError | None:
    """Return an error that names who raised ``error``; None if that is bertlab, or not known."""
    if type(error).__name__ in _NOT_THEIRS:
        return None
    packages = _homes()
    for place in _places(error):
        if place.file.is_relative_to(_OWN_FOLDER):
            if place.file.relative_to(_OWN_FOLDER).parts[0] in _CORE:
                return None
            continue
        who = next(
            (name for home, name in packages.items() if place.file.is_relative_to(home)), None
        )
        who = who or _callback(place.owner)
        if who is not None:
            who = _plugin_class(place.owner) or who
            return PluginCodeError(
                f"{who} raised an error at {place}: {_words(error)} (BERTLAB_DEBUG=1 shows the "
                "traceback)"
            )
    return None


def _places(error: BaseException) -> Iterator[_Place]:
    """Yield where an error came from, the innermost place first."""
    if _WORKER in str(error):
        for file, line, function in reversed(_PLACE.findall(str(error))):
            yield _Place(Path(file), int(line), function)
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        code = frame.f_code
        owner = frame.f_locals.get("self")
        yield _Place(Path(code.co_filename), line, code.co_qualname, owner)


def _words(error: BaseException) -> str:
    """Return what an error says; of a data worker's the last line, which is the error itself."""
    if _WORKER in str(error):
        return str(error).strip().splitlines()[-1]
    return told(error)


def _homes() -> dict[Path, str]:
    """Return the folders and files of each package with plugins, and what it is."""
    packages = {package: number for _, package, number in targets()}
    return {
        home: f"{package} {number}"
        for package, number in packages.items()
        for home in homes(package)
    }


def _plugin_class(owner: object) -> str | None:
    """Return the plugin whose class an object is of, with its name in configs."""
    target = f"{type(owner).__module__}:{type(owner).__qualname__}"
    plugins = [each for kind in GROUPS for each in listed(kind) if each.target == target]
    return str(plugins[0]) if plugins and plugins[0].package not in FIRST_PARTY else None


def _callback(owner: object) -> str | None:
    """Return ``callback Timer of lightning 2.6.6 (…)``; None if it is none, or bertlab's."""
    kind = type(owner)
    top = kind.__module__.split(".")[0]
    # by name: Lightning is not imported for this
    is_callback = any(
        each.__name__ == "Callback" and each.__module__.split(".")[0].endswith("lightning")
        for each in kind.__mro__
    )
    if not is_callback or top in _OWN_MODULES:
        return None
    names = packages_distributions().get(top, [])
    of = f" of {names[0]} {version(names[0])}" if names else ""
    return f"callback {kind.__name__}{of} ({kind.__module__})"
