"""The index of plugins: entry points, read without importing what they point to.

Classes come through the groups of :data:`GROUPS`; a config names an entry point
(``objectives: [mlm, nsp]``) and only then is its module imported.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from bertlab.errors import PluginError, nearest

Kind = Literal["encoder", "objective", "head"]
GROUPS: dict[Kind, str] = {
    "encoder": "bertlab.encoders",
    "objective": "bertlab.objectives",
    "head": "bertlab.heads",
}
_KEYS: dict[Kind, str] = {"encoder": "encoder", "objective": "objectives", "head": "head"}
OWN_PACKAGE = "bertlab"


@dataclass(frozen=True)
class Plugin:
    """One installed class by name, not imported yet.

    Attributes:
        kind: what it is.
        name: its name in configs, which is the entry point's.
        target: ``module:Class``.
        package: the distribution that brings it.
        version: version of that distribution.
    """

    kind: Kind
    name: str
    target: str
    package: str
    version: str


@cache
def installed(kind: Kind) -> dict[str, Plugin]:
    """Return what is installed of a kind, by name; our own classes win over same-named ones."""
    found: dict[str, Plugin] = {}
    for entry in entry_points(group=GROUPS[kind]):
        plugin = _plugin(kind, entry)
        if plugin.name not in found or plugin.package == OWN_PACKAGE:
            found[plugin.name] = plugin
    return dict(sorted(found.items()))


def load_class(kind: Kind, name: str, base: type) -> type:
    """Import the class that a config names.

    Args:
        kind: which group to look in.
        name: the entry point's name.
        base: the contract that the class must subclass.

    Raises:
        PluginError: if the name is unknown (the nearest is named), its import fails, or it is not
            a subclass of ``base``.
    """
    plugins = installed(kind)
    if name not in plugins:
        raise PluginError(
            f"model.{_KEYS[kind]}: no {kind} is called {name!r}{nearest(name, plugins)} "
            f"(installed: {', '.join(plugins) or 'none'})"
        )
    plugin = plugins[name]
    where = f"{kind} {name!r} of {plugin.package} {plugin.version} ({plugin.target})"
    try:
        loaded = EntryPoint(name, plugin.target, GROUPS[kind]).load()
    except Exception as error:
        raise PluginError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(f"{where} is not a subclass of {base.__module__}.{base.__name__}")
    return loaded


def _plugin(kind: Kind, entry: EntryPoint) -> Plugin:
    distribution = entry.dist
    return Plugin(
        kind=kind,
        name=entry.name,
        target=entry.value,
        package=distribution.name if distribution else "unknown",
        version=distribution.version if distribution else "unknown",
    )
