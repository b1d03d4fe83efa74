"""bertlab: a plugin-based experiment framework for BERT on PyTorch Lightning.

Everything that a user or the author of a plugin needs can be imported from here. A name's module is
imported when the name is first used: ``import bertlab`` alone imports neither torch nor NumPy. The
contracts among these names are in :mod:`bertlab.api` as well, with the version that they have.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


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
__all__ = ["__version__", *_HOME]  # noqa: PLE0604  strings, all of them


def __getattr__(name: str) -> Any:  # noqa: ANN401  a public name of any kind
    """Import a public name when it is first asked for (PEP 562); packages add names."""
    if name in _HOME:
        module, original = _HOME[name]
        found = getattr(import_module(module), original)
    else:
        from bertlab.plugins.index import added_name  # noqa: PLC0415  reads the entry points

        found = added_name(__name__, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    from bertlab.plugins.index import added_names  # noqa: PLC0415

    return sorted({*globals(), *__all__, *added_names(__name__)})
