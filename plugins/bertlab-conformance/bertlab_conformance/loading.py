"""What is looked at when a stranger's class is loaded; that of a command without torch."""

import inspect

from bertlab.api import PluginError
from bertlab.extend import Plugin


def check_class(plugin: Plugin, loaded: type, base: type) -> None:
    """Raise PluginError if a class does not fit its contract, ``base``; ``plugin`` names it."""
    if plugin.kind != "command":
        from bertlab_conformance.contract_watch import (  # noqa: PLC0415  not for --help
            check_class as check_and_watch,
        )

        check_and_watch(plugin, loaded, base)
    elif (missing := missing_methods(loaded, base)) is not None:
        raise PluginError(f"{plugin}: {missing}")


def missing_methods(plugin: type, base: type) -> str | None:
    """Return which methods of its contract a class does not define, in words, or None."""
    if not inspect.isabstract(plugin):
        return None
    missing = ", ".join(sorted(vars(plugin)["__abstractmethods__"]))
    return f"it does not define {missing}, see {base.__module__}.{base.__name__}"
