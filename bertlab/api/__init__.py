"""The stable contract of plugins, and its version; every name is in :mod:`bertlab` as well.

What is listed in ``__init__.pyi`` changes only together with :data:`CONTRACT`. The other public
names of bertlab, its building blocks, may change in any minor version.
"""

from pathlib import Path

from bertlab import names_in

CONTRACT = 3
"""Version of what plugins can rely on; raised when what keeps it could break (docs/plugins.md)."""
OLDEST_CONTRACT = 2
"""Oldest version that plugins may be written for."""

__all__ = ["CONTRACT", *names_in(Path(__file__).with_suffix(".pyi"))]  # noqa: PLE0604  strings


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'bertlab.api' has no attribute {name!r}")
    import bertlab  # noqa: PLC0415  only when a name is asked for, which imports torch

    found = globals()[name] = getattr(bertlab, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
