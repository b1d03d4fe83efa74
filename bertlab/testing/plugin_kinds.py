"""Which kind of plugin a class is."""

import inspect
from typing import Any

from torchmetrics import Metric

from bertlab.api.encoder import Encoder
from bertlab.api.head import Head
from bertlab.api.source import DataSource
from bertlab.api.task import Objective, Task
from bertlab.errors import PluginError, nearest
from bertlab.plugins.index import GROUPS, Kind, installed, load_class

BASES: dict[Kind, type[Any]] = {
    "encoder": Encoder,
    "objective": Objective,
    "head": Head,
    "metric": Metric,
    "source": DataSource,
}


def find_plugin(plugin: type[Any] | str) -> tuple[Kind, type[Any]]:
    """Return a plugin's kind and class.

    Args:
        plugin: the class, or an entry-point name.

    Raises:
        PluginError: it is of no kind, not installed, or installed as several kinds.
    """
    if isinstance(plugin, str):
        return _installed(plugin)
    if not inspect.isclass(plugin):
        raise PluginError(
            f"conformance: found {plugin!r}, expected a class or the name of an installed one; "
            "options of its __init__ go into arguments={…}"
        )
    for kind, base in BASES.items():
        if issubclass(plugin, base):
            return kind, plugin
    advice = "a task is an Objective or a Head" if issubclass(plugin, Task) else "subclass one"
    names = ", ".join(f"{base.__module__}.{base.__name__}" for base in BASES.values())
    raise PluginError(
        f"conformance: {plugin.__module__}.{plugin.__qualname__} is of no kind; {advice}: {names}"
    )


def _installed(name: str) -> tuple[Kind, type[Any]]:
    kinds = [kind for kind in GROUPS if kind in BASES and name in installed(kind)]
    if not kinds:
        names = [each for kind in GROUPS for each in installed(kind)]
        raise PluginError(
            f"conformance: no installed plugin is called {name!r}{nearest(name, names)}; "
            "`pip install -e .` reads the entry points of pyproject.toml anew"
        )
    if len(kinds) > 1:
        raise PluginError(
            f"conformance: {name!r} is installed as {' and as '.join(kinds)}; give the class"
        )
    return kinds[0], load_class(kinds[0], name, BASES[kinds[0]])
