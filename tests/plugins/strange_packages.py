"""Packages of strangers, installed as pip leaves them: metadata, entry points and modules."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

import pytest

from bertlab.api import CONTRACT
from bertlab.plugins import hooks, index
from bertlab.plugins.index import CONTRACT_GROUP


def install(
    folder: Path,
    name: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    version: str = "1.0",
) -> None:
    """Write a package into a folder that is on ``sys.path``.

    Args:
        folder: where it goes.
        name: of the distribution.
        entry_points: targets by group and name; of this bertlab's contract if they do not say.
        modules: code by module name.
        version: of the distribution.
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    contract = {CONTRACT_GROUP: {"contract": f"v{CONTRACT}"}}
    groups = [
        "\n".join([f"[{group}]", *(f"{key} = {target}" for key, target in names.items())])
        for group, names in (contract | dict(entry_points)).items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups) + "\n")
    for module, code in modules.items():
        (folder / f"{module}.py").write_text(code)


def without(patch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let the entry points be those of an environment without some packages.

    The caches of index and hooks are the test's to empty again, as its fixture does.
    """
    found = entry_points()

    class Others:
        def select(self, group: str) -> EntryPoints:
            kept = [each for each in found.select(group=group) if each.dist.name not in packages]
            return EntryPoints(kept)

    patch.setattr(index, "_all_entry_points", cache(Others))
    index.forget_installed()
    hooks.hook_modules.cache_clear()
