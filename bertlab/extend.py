"""What packages may build on beside the contract: parts of the core, by name.

First-party packages import from :mod:`bertlab`, :mod:`bertlab.api` and here, as strangers may.
What is not in :mod:`bertlab.api` may change in any minor version. The names are listed once, in
``extend.pyi``, and a name's module is imported when the name is first used.
"""

import re
from importlib import import_module
from pathlib import Path


def names_in(stub: Path) -> dict[str, tuple[str, str]]:
    """Return module and original name of each name that a stub imports; nothing is imported."""
    return {
        name: (module, original)
        # from bertlab.files import utf8 as utf8 -> utf8: ("bertlab.files", "utf8")
        for module, names in re.findall(
            r"^from (\S+) import (\(.*?\)|[^\n]*)", stub.read_text("utf-8"), re.M | re.S
        )
        for original, name in re.findall(r"(\w+) as (\w+)", names)
    }


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
