"""Names that packages add to ``bertlab`` and ``bertlab.testing``: entry points of one group.

``Study = "bertlab_studies.study:Study"`` is ``bertlab.Study``; an entry point that is called
``testing.conformance`` is ``bertlab.testing.conformance``. The core's own names win.
"""

from importlib.metadata import EntryPoint

from bertlab.plugins.first_party import FIRST_PARTY, package_of
from bertlab.plugins.index import brought_by, check_contract, entry_package, entry_points_of

GROUP = "bertlab.names"


def added_names(module: str) -> list[str]:
    """Return the names that packages add to ``bertlab`` or ``bertlab.testing``."""
    found = (_split(entry.name) for entry in entry_points_of(GROUP))
    return sorted({name for place, name in found if place == module})


def added_name(module: str, name: str) -> object:
    """Return what a package adds to a module under a name; it is imported here.

    Raises:
        AttributeError: no package brings it.
        ImportError: a first-party package does that is not installed, or two packages do. (From an
            AttributeError, ``from bertlab import Study`` would not show the message.)
        PluginError: its package was written for another contract.
    """
    # Python itself asks for private names
    entries = () if name.startswith("_") else entry_points_of(GROUP)
    found = [entry for entry in entries if _split(entry.name) == (module, name)]
    own = [entry for entry in found if entry_package(entry)[0] in FIRST_PARTY]
    if len(found) > 1 and not own:
        packages = " and ".join(sorted(brought_by(*entry_package(each)) for each in found))
        raise ImportError(f"{packages} both bring {module}.{name}; uninstall one of them")
    if not found:
        key = f"{module}.{name}".removeprefix("bertlab.")
        if (package := package_of("name", key)) is not None:
            raise ImportError(f"{module}.{name} comes with {package}: pip install {package}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return _load((own or found)[0])


def _load(entry: EntryPoint) -> object:
    if entry.dist is not None:
        check_contract(entry.dist.name)
    loaded: object = entry.load()
    return loaded


def _split(entry_name: str) -> tuple[str, str]:
    # "Study" -> ("bertlab", "Study"), "testing.conformance" -> ("bertlab.testing", "conformance")
    place, _, name = f"bertlab.{entry_name}".rpartition(".")
    return place, name
