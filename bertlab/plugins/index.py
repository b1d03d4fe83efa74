"""The index of plugins: entry points, read without importing what they point to.

Classes come through the groups of :data:`GROUPS`; a config names an entry point
(``objectives: [mlm, nsp]``) and only then is its module imported.

The core imports none of the packages that are released with it. It knows their names, so that a
config or a command that needs one of them says what to install.
"""

import contextlib
import io
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import (
    Distribution,
    EntryPoint,
    EntryPoints,
    distributions,
    entry_points,
    version,
)
from pathlib import Path
from types import MethodType
from typing import Any, TypeVar

from bertlab.api import CONTRACT, OLDEST_CONTRACT
from bertlab.errors import PluginError, UnknownPluginError, nearest, told_with_place, warn
from bertlab.files import LARGEST_FILE

OWN_PACKAGE = "bertlab-core"
METAPACKAGE = "bertlab-lightning"  # all of them; on PyPI, bertlab is somebody else's
# package: what it brings, as {kind of the index: names}
_BRINGS = json.loads((Path(__file__).parent / "first_party.json").read_text("utf-8"))
# what files of a reader end in, by which its package is missed
FILES_OF_READERS = {"tensorflow": ".index"}
# released with the core, at its version
FIRST_PARTY: frozenset[str] = frozenset({OWN_PACKAGE, *_BRINGS})


def package_of(kind: str, name: str) -> str | None:
    """Return the first-party package that brings something, installed or not; None if none does."""
    return next((each for each, all_ in _BRINGS.items() if name in all_.get(kind, ())), None)


def where_to_get(kind: str, name: str) -> str:
    """Return the end of a message about what is not installed; empty if nobody knows it."""
    package = package_of(kind, name)
    return "" if package is None else f"; it comes with {package}: pip install {package}"


Kind = str  # one of KEYS
# kinds of plugins, and the key that names one
KEYS: dict[Kind, str] = {
    "encoder": "model.encoder",
    "objective": "model.objectives",
    "head": "model.head",
    "adapter": "model.adapter",
    "source": "data.corpus, data.source",
    "input_format": "data.input_format",
    "transform": "data.transforms",
    "masking_unit": "model.objectives.mlm.unit",
    "metric": "model.metrics",
    "evaluation": "--evaluation, evaluations",
    "optimizer": "model.optimizer.name",
    "schedule": "model.optimizer.schedule, schedule",
    "tokenizer": "data.tokenizer_kind",
    "tokenizer_model": "model.type of tokenizer.json",
    "huggingface_form": "model_type of config.json",
    "command": "bertlab",
    "exporter": "--format",
    "reader": "model.init_from",
    "executor": "--executor",
    "format": "data.format, --output_format",
    "data_module": "model.heads",
}
GROUPS: dict[Kind, str] = {kind: f"bertlab.{kind}s" for kind in KEYS}
RECORDED_AS = "bertlab"  # in manifests, as before its distribution had a name of its own
PATIENCE = 20.0  # seconds of an import, until the user is told who is imported

Made = TypeVar("Made")
CONTRACT_GROUP = "bertlab.contract"
HOOKS = "bertlab.hooks"
_MOST_ORIGINS = 1000


@dataclass(frozen=True)
class Plugin:
    """One installed class by name, not imported yet.

    Attributes:
        kind: what it is.
        name: its name in configs, which is the entry point's.
        target: ``module:Class``.
        package: the distribution that brings it.
        version: version of that distribution.
        contract: version of the contract that the package says it was written for.
    """

    kind: Kind
    name: str
    target: str
    package: str
    version: str
    contract: int

    @property
    def is_ours(self) -> bool:
        """Whether bertlab itself brings it, or a package that is released with it."""
        return self.package in FIRST_PARTY

    @property
    def full_name(self) -> str:
        """``my_package:name``, of the distribution ``my-package``; it can be part of a key."""
        return f"{re.sub('[^a-z0-9]+', '_', self.package.lower())}:{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.package} {self.version} ({self.target})"


@cache
def _all_entry_points() -> Any:  # noqa: ANN401  of another class before Python 3.12
    for place in sys.path:
        for file in Path(place).glob("*-info/entry_points.txt"):
            if not file.is_file() or file.stat().st_size > LARGEST_FILE:  # a device has no end
                raise PluginError(
                    f"{file}: is no file, or has over {LARGEST_FILE:,} bytes: expected the entry "
                    "points of an installed package; install it again"
                )
    try:
        return entry_points()  # reads a file of each installed package
    except Exception:  # of one package; torch and Lightning read them all as well, and would fail
        raise PluginError(_broken_packages()) from None


def _broken_packages() -> str:
    """Say whose entry points cannot be read."""
    broken = []
    for package in distributions():
        try:
            package.entry_points  # noqa: B018  is read here
        except Exception as error:
            name, where = _name_and_version(package)[0], package.locate_file("")
            broken.append(f"{where}: entry_points.txt of {name}: {error}; install it again")
    return "\n".join(broken)


@cache  # jsonargparse asks for names of modules, and so for added ones, by the thousand
def entry_points_of(group: str) -> EntryPoints:
    """Return what installed packages name under a group; nothing is imported."""
    found: EntryPoints = _all_entry_points().select(group=group)
    return found


@cache
def listed(kind: Kind) -> tuple[Plugin, ...]:
    """Return all that is installed of a kind, by name, those that cannot be used as well."""
    found = []
    for entry in entry_points_of(GROUPS[kind]):
        package, version = entry_package(entry)
        contract = 1 if entry.dist is None else contract_of(package)
        found.append(Plugin(kind, entry.name, entry.value, package, version, contract))
    return tuple(
        # False sorts before True: our own class of a name comes first
        sorted(found, key=lambda each: (each.name, each.package not in FIRST_PARTY, each.package))
    )


class Installed(dict[str, Plugin]):
    """What is installed of a kind, by the name that a config gives.

    That is the entry point's, or ``package:name`` where others have that name, too; bertlab's own
    win. All are found by ``package:name``: a config stays right when packages come or go.
    """

    def __init__(self, plugins: Collection[Plugin]) -> None:
        self.by_package = {each.full_name: each for each in plugins}
        counts = Counter(each.name for each in plugins)
        super().__init__(
            (each.full_name if counts[each.name] > 1 and not each.is_ours else each.name, each)
            for each in plugins
        )

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.by_package

    def __missing__(self, name: str) -> Plugin:
        return self.by_package[name]


@cache
def installed(kind: Kind) -> Installed:
    """Return what is installed of a kind, by name."""
    return Installed(listed(kind))


def forget_installed() -> None:
    """Read the entry points anew; for tests, and after a package was installed."""
    for read in (_all_entry_points, entry_points_of, _name_and_version, listed, installed):
        read.cache_clear()
    contract_of.cache_clear()


def why_unusable(plugin: Plugin) -> str | None:
    """Return why a plugin cannot be used, as far as that is known without importing it."""
    return contract_mismatch(plugin.package, plugin.contract)


def contract_mismatch(package: str, contract: int) -> str | None:
    """Return why a package does not fit the contract, and what to do; None if it does."""
    if OLDEST_CONTRACT <= contract <= CONTRACT:
        return None
    silent = " or states none," if contract == 1 else ""
    words = f"it was written for version {contract} of the plugin contract,{silent} "
    words += f"this bertlab has version {CONTRACT}; "
    if contract > CONTRACT:
        return f"{words}upgrade bertlab: pip install -U {METAPACKAGE}"
    return (
        f"{words}upgrade it: pip install -U {package}; if it is yours, docs/plugins.md, 'Versions "
        "of the contract', says what to change, and how a package states its version"
    )


def version_of(package: str) -> str:
    """Return the version of an installed package; bertlab's own is recorded as ``bertlab``."""
    return version(OWN_PACKAGE if package == RECORDED_AS else package)


def check_contract(package: str) -> None:
    """Raise PluginError if an installed package was written for another contract."""
    if (reason := contract_mismatch(package, contract_of(package))) is not None:
        raise PluginError(reason)


def make_plugin(
    kind: Kind,
    section: Mapping[str, Any],
    base: type[Made],
    **more: Any,  # noqa: ANN401  arguments of any plugin
) -> Made:
    """Return what a section of a config describes: ``{name: NAME, …}`` with its arguments."""
    arguments = {**section, **more}
    return load_class(kind, arguments.pop("name"), base)(**arguments)


def make_alone(kind: Kind, name: str, base: type[Made]) -> Made:
    """Make a plugin whose class takes no arguments."""
    made = load_class(kind, name, base)
    try:
        return made()
    except TypeError as error:
        made_alone = f"{installed(kind)[name]} is made without arguments"
        raise PluginError(f"{made_alone}, but {error}") from error


def load_class(kind: Kind, name: str, base: type[Made]) -> type[Made]:
    """Import the class that a config names.

    What it prints on import goes to standard error: standard output is for results.
    """
    plugins = installed(kind)
    if name not in plugins:
        if several := " or ".join(sorted(each for each in plugins if each.endswith(f":{name}"))):
            found = f"{KEYS[kind]}: {name!r} is a name in several packages"
            raise UnknownPluginError(f"{found}; expected {several}")
        raise UnknownPluginError(
            f"{KEYS[kind]}: no {kind} is called {name!r}{nearest(name, plugins)} "
            f"(installed: {', '.join(plugins) or 'none'}){told_origin(kind, name)}"
            f"{where_to_get(kind, name)}"
        )
    plugin = plugins[name]
    if (reason := why_unusable(plugin)) is not None:
        raise PluginError(f"{plugin} cannot be used: {reason}")
    loaded, printed = import_class(plugin, base)
    sys.stderr.write(printed)
    return loaded


_origins: dict[tuple[str, str], str] = {}  # for messages: what files from elsewhere say


def remember_origin(kind: str, name: str, words: str) -> None:
    """Keep what a checkpoint says of where a plugin is from, for the message that it lacks."""
    if len(_origins) < _MOST_ORIGINS:
        _origins[kind, name] = words


def told_origin(kind: str, name: str) -> str:
    """Return what a message says of where a missing plugin is from; empty if nothing is known."""
    words = _origins.get((kind, name.rpartition(":")[2]))
    return "" if words is None else f"; {words}"


def import_class(plugin: Plugin, base: type[Made]) -> tuple[type[Made], str]:
    """Import a plugin's class; return it, and what the import printed."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), tell_of_a_wait(str(plugin), plugin.package):
            loaded = EntryPoint(plugin.name, plugin.target, GROUPS[plugin.kind]).load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # no attribute 'Data2vec'; did you mean 'Data2Vec'?
        known = getattr(getattr(error, "obj", None), "__dict__", {})
        words = told_with_place(error) + nearest(str(getattr(error, "name", "")), known)
        raise PluginError(f"{plugin} cannot be imported: {words}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(f"{plugin} is not a subclass of {base.__module__}.{base.__name__}")
    if plugin.package not in FIRST_PARTY and "check_class" in added_names("bertlab.plugins"):
        check_class: Any = added_name("bertlab.plugins", "check_class")
        check_class(plugin, loaded, base)
    return loaded, printed.getvalue()


@contextlib.contextmanager
def tell_of_a_wait(name: str, package: str) -> Iterator[None]:
    """Warn if the import of a stranger's module, in the block, goes on and on."""
    if package in FIRST_PARTY:  # without a thread: runs are forked from processes that import these
        yield
        return
    words = f"{name} is still being imported after {PATIENCE:.0f} s; Ctrl-C ends the command"
    timer = threading.Timer(PATIENCE, warn, [words])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def missing_package(key: str) -> str | None:
    """Return the first-party package that adds a key to ``fit``, if it is not installed."""
    package = package_of("key", key)
    adding = [entry_package(entry)[0] for entry in entry_points_of(HOOKS)]
    return None if package in adding else package


def keys_of_packages() -> list[str]:
    """Return the keys that installed first-party packages add to ``fit``."""
    keys = sorted(key for brought in _BRINGS.values() for key in brought.get("key", ()))
    return [key for key in keys if missing_package(key) is None]


def entry_package(entry: EntryPoint) -> tuple[str, str]:
    """Return the name and the version of the distribution that brings an entry point."""
    return ("unknown", "unknown") if entry.dist is None else _name_and_version(entry.dist)


@cache
def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    try:
        metadata = distribution.metadata  # parsed anew each time it is asked for
        return str(metadata["Name"] or "unknown"), str(metadata["Version"] or "unknown")
    except Exception:  # of a broken package
        return "unknown", "unknown"


@cache
def contract_of(package: str) -> int:
    """Return the contract that an installed package was written for; 1 if it does not say.

    It says so by an entry point that nothing imports::

        [project.entry-points."bertlab.contract"]
        contract = "v3"
    """
    if package in FIRST_PARTY:
        return CONTRACT
    stated = [
        entry.value  # no module, and never loaded
        for entry in entry_points_of(CONTRACT_GROUP)
        if entry_package(entry)[0] == package
    ]
    # "v2" -> 2
    numbers = [re.fullmatch(r"v(\d{1,9})", value) for value in stated]
    return max((int(number[1]) for number in numbers if number), default=1)


GROUP = "bertlab.names"


def added_names(module: str) -> list[str]:
    """Return the names that packages add to ``bertlab`` or ``bertlab.testing``."""
    # "Study" is of bertlab, "testing.conformance" of bertlab.testing
    found = (f"bertlab.{entry.name}".rpartition(".") for entry in entry_points_of(GROUP))
    return sorted({name for place, _, name in found if place == module})


def added_name(module: str, name: str) -> object:
    """Return what a package adds to a module under a name; it is imported here."""
    key = f"{module}.{name}".removeprefix("bertlab.")
    # Python itself asks for private names
    entries = () if name.startswith("_") else entry_points_of(GROUP)
    found = [entry for entry in entries if entry.name == key]
    own = [entry for entry in found if entry_package(entry)[0] in FIRST_PARTY]
    if len(found) > 1 and not own:
        packages = " and ".join(sorted(" ".join(entry_package(each)) for each in found))
        raise ImportError(f"{packages} both bring {module}.{name}; uninstall one of them")
    if not found:
        if (package := package_of("name", key)) is not None:
            # of an AttributeError, `from bertlab import Study` would not show the message
            raise ImportError(f"{module}.{name} comes with {package}: pip install {package}")
        raise AttributeError(f"{module!r} has no attribute {name!r}")
    entry = (own or found)[0]
    if entry.dist is not None:
        check_contract(entry.dist.name)
    loaded: object = entry.load()
    return loaded


def of_package(name: str, error: type[Exception], what: str) -> Any:  # noqa: ANN401
    """Return what a package adds under a name, such as ``data.UrlFile``.

    Without the package it is an error, which says ``what`` cannot be done.
    """
    try:
        return added_name(*f"bertlab.{name}".rsplit(".", 1))
    except ImportError as missing:
        words = str(missing).removeprefix(f"bertlab.{name} ")  # comes with …
        raise error(f"{what}: {words}") from None


class WithAddedMethods:
    """A class to which packages add methods, under ``Run.NAME`` in `bertlab.names`: ``plot``."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a method of any kind
        """Return a method that a package adds; it is imported here."""
        added: Any = added_name(f"bertlab.{type(self).__name__}", name)
        return MethodType(added, self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *added_names(f"bertlab.{type(self).__name__}")})
