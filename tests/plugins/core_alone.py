"""The index as it is where only the core is installed."""

from importlib.metadata import EntryPoints, entry_points

import pytest

from bertlab.plugins import hooks, index


def leave_the_core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the entry points of all packages but the core; ``forget_installed`` shows them again."""
    found = entry_points()
    own = [
        each
        for group in found.groups
        for each in found.select(group=group)
        if each.value.startswith("bertlab.")
    ]
    monkeypatch.setattr(index, "entry_points", lambda: EntryPoints(own))
    index.forget_installed()
    hooks.hook_modules.cache_clear()
