"""Packages of others: where they are from, and a hash of their code.

A package that is being written keeps its version while its code changes. So a run records a hash of
the code as well, however the package was installed: from an index, from a folder, or editable.
"""

import hashlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from bertlab.errors import PluginCodeError
from bertlab.plugins.index import (
    FIRST_PARTY,
    GROUPS,
    HOOKS,
    added_name,
    added_names,
    entry_package,
    entry_points_of,
    listed,
)

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


def mistake_of_others(error: BaseException) -> PluginCodeError | None:
    """Return an error that names who raised ``error``; None if that is bertlab, or not known.

    bertlab-conformance finds it out: without it nobody is named.
    """
    if "mistake_of_others" not in added_names("bertlab.plugins"):
        return None
    find: Any = added_name("bertlab.plugins", "mistake_of_others")
    found: PluginCodeError | None = find(error)
    return found
