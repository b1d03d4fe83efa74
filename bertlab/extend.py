"""What packages may build on beside the contract: parts of the core, by name.

First-party packages import from :mod:`bertlab`, :mod:`bertlab.api` and here, as strangers may.
What is not in :mod:`bertlab.api` may change in any minor version. The names are listed once, in
``extend.pyi``, and a name's module is imported when the name is first used.
"""

from importlib import import_module
from pathlib import Path

from bertlab import names_in

_HOME = names_in(Path(__file__).with_suffix(".pyi"))
__all__ = [*_HOME]  # noqa: PLE0604  strings, all of them


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'bertlab.extend' has no attribute {name!r}")
    module, original = _HOME[name]
    found = globals()[name] = getattr(import_module(module), original)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
