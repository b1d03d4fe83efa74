"""Packages of others: where they are from, and whose code raised an error.

A package that is being written keeps its version while its code changes. So a run records a hash of
the code as well, however the package was installed: from an index, from a folder, or editable.

bertlab calls strangers' code in every step. Its errors are not bugs of bertlab, and who can mend
them is named: package, version, file and line.
"""

import hashlib
import importlib.util
import re
import traceback
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name

from bertlab.errors import PluginCodeError, told
from bertlab.plugins.index import FIRST_PARTY, GROUPS, HOOKS, entry_package, entry_points_of, listed

_PASSED_BY = ("__pycache__", ".git")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,40}")
_SHOWN = 80  # characters of a name that is none


def targets() -> Iterator[tuple[str, str, str]]:
    """Yield ``module:Class``, package and version of all plugins, hooks too, but bertlab's own."""
    for kind in GROUPS:
        for plugin in listed(kind):
            if plugin.package not in FIRST_PARTY:
                yield plugin.target, plugin.package, plugin.version
    for entry in entry_points_of(HOOKS):
        if entry_package(entry)[0] not in FIRST_PARTY:
            yield entry.value, *entry_package(entry)


def homes(package: str) -> list[Path]:
    """Return the folders, and single files, that hold the code of a package with plugins."""
    tops = {re.split(r"[.:]", target)[0] for target, owner, _ in targets() if owner == package}
    found = []
    for top in sorted(tops):
        if _is_anothers(top, package):
            continue
        try:
            spec = importlib.util.find_spec(top)  # imports nothing: it is no submodule
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.submodule_search_locations is not None:
            found += [Path(each) for each in spec.submodule_search_locations]
        elif spec is not None and spec.origin is not None:
            found.append(Path(spec.origin))
    return found


def _is_anothers(top: str, package: str) -> bool:
    """Whether a module is another package's: an entry point may name a class of torchmetrics."""
    try:
        owner = distribution(top).name
    except (PackageNotFoundError, ValueError):
        return False
    return canonicalize_name(owner) != canonicalize_name(package)


@cache
def content_hash(package: str) -> str:
    """Return a hash of all files of a package's code; of none if it cannot be found."""
    digest = hashlib.sha256()
    for home in homes(package):
        files = [home] if home.is_file() else sorted(home.rglob("*"))
        for file in files:
            if file.is_file() and not any(part in _PASSED_BY for part in file.parts):
                name = file.relative_to(home.parent).as_posix()
                own = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{name}\n{own}\n".encode())
    return digest.hexdigest()


def named_package(package: object, version: object) -> str:
    """Return name and version of a package that a file from elsewhere tells of, to be shown.

    What is no name or version is in quotes, with escapes.
    """
    shown = [
        str(found) if isinstance(found, str) and form.fullmatch(found) else repr(found)[:_SHOWN]
        for found, form in ((package, _NAME), (version, _VERSION))
    ]
    return " ".join(shown)


_OWN_MODULES = ("bertlab", *(package.replace("-", "_") for package in FIRST_PARTY))
_OWN_FOLDER = Path(__file__).parents[1]
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
