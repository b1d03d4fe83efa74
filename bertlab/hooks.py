"""Behaviour that packages add to a run, through pluggy.

A package names a module under the entry-point group ``bertlab.hooks``; its functions that are
marked with :data:`hookimpl` are called. Our own callbacks come in the same way.
"""

import sys
import warnings
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from lightning.pytorch import Callback

GROUP = "bertlab.hooks"
hookspec = pluggy.HookspecMarker("bertlab")
hookimpl = pluggy.HookimplMarker("bertlab")


@hookspec
def bertlab_callbacks(run_dir: Path) -> "list[Callback]":  # type: ignore[empty-body]
    """Return Lightning callbacks to add to every ``fit``; ``run_dir`` is the run's directory."""


@cache
def plugin_manager() -> pluggy.PluginManager:
    """Load every installed plugin, one by one; a warning names one that fails and is left out."""
    manager = pluggy.PluginManager("bertlab")
    manager.add_hookspecs(sys.modules[__name__])
    for entry in entry_points(group=GROUP):
        package = entry.dist.name if entry.dist else "unknown"
        try:
            manager.register(entry.load(), name=f"{package}:{entry.name}")
        except Exception as error:  # whatever a stranger's module raises
            warnings.warn(
                f"plugin {entry.name!r} of {package} ({entry.value}) is left out: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
    return manager


def run_callbacks(run_dir: Path) -> "list[Callback]":
    """Return the callbacks of all plugins for a run in ``run_dir``."""
    added: list[list[Callback]] = plugin_manager().hook.bertlab_callbacks(run_dir=run_dir)
    return [callback for callbacks in added for callback in callbacks]
