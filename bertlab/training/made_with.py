"""What code a run was made with: packages, and plugins with a hash of their files.

The manifest has it of the first session and, below ``sessions``, of each one after that, as far as
it is another. A checkpoint has that of the session that wrote it, so that a run which goes on under
other code says so.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from bertlab.config.request import Request
from bertlab.config.yaml_files import Config
from bertlab.data.sources import is_source
from bertlab.plugins.hooks import GROUP
from bertlab.plugins.index import (
    FIRST_PARTY,
    Kind,
    Plugin,
    entry_package,
    entry_points_of,
    installed,
    recorded_as,
)
from bertlab.plugins.strangers import content_hash

KEY = "made_with"  # of a checkpoint
_CODE = ("packages", "plugins", "plugin_contents", "plugin_names")
# of a session in the manifest, if they are not as before
_OF_SESSION = (*_CODE, "command", "python", "platform", "device", "threads", "precision")
_DIGITS = 12

Facts = Mapping[str, Any]


def plugin_facts(request: Request, config: Config) -> dict[str, dict[str, str]]:
    """Return what a manifest says of the plugins of a run."""
    hooks = dict(entry_package(entry) for entry in entry_points_of(GROUP))  # called in every run
    return facts_of(_used(request, config), hooks)


def facts_of(
    plugins: Iterable[Plugin], hooks: Mapping[str, str] = MappingProxyType({})
) -> dict[str, dict[str, str]]:
    """Return what :func:`plugin_facts` does, of plugins and of packages with hooks."""
    used = list(plugins)
    versions = {each.package: each.version for each in used} | dict(hooks)
    others = [package for package in versions if package not in FIRST_PARTY]
    return {
        "plugins": {recorded_as(package): version for package, version in versions.items()},
        "plugin_contents": {package: content_hash(package) for package in others},
        "plugin_names": {
            f"{each.kind} {each.name}": each.package
            for each in used
            if each.package not in FIRST_PARTY
        },
    }


def _used(request: Request, config: Config) -> Iterator[Plugin]:
    """Yield the plugins that a config names, wherever it does."""
    named: dict[Kind, list[str | None]] = {
        "encoder": [request.encoder],
        "objective": [*request.objectives],
        "head": [request.head, *request.heads.values()],
        "metric": [*request.metrics],
        "optimizer": [request.optimizer],  # a class of torch.optim is no plugin
        "schedule": [request.schedule],
        "tokenizer": [request.tokenizer],
    }
    for kind, names in named.items():
        yield from (installed(kind)[name] for name in names if name in installed(kind))
    data = config["data"]
    given = [data.get("source"), *_listed(data.get("corpus"))]
    for location in given:
        if isinstance(location, str) and is_source(location):
            yield installed("source")[location.partition(":")[0]]
    for entry in (config.get("evaluations") or {}).values():
        evaluation = installed("evaluation").get(entry.get("evaluation"))
        if evaluation is not None:
            yield evaluation


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def code_of(facts: Facts) -> dict[str, dict[str, str]]:
    """Return the part of a manifest that a checkpoint keeps."""
    return {key: dict(facts.get(key) or {}) for key in _CODE}


def changes_of_code(now: Facts, before: Facts) -> list[str]:
    """Return a line for each package that is another than before: ``torch 2.12 → 2.13``."""
    lines: list[str] = []
    moved: set[str] = set()
    for key in ("packages", "plugins"):
        here, there = _texts(now, key), _texts(before, key)
        for name in here.keys() & there.keys() - moved:
            if here[name] != there[name]:
                lines.append(f"{name} {there[name]} → {here[name]}")
                moved.add(name)
    here, there = _texts(now, "plugin_contents"), _texts(before, "plugin_contents")
    for name in here.keys() & there.keys() - moved:
        if here[name] != there[name]:
            lines.append(
                f"{name} {_texts(now, 'plugins').get(name)} with other files "
                f"({there[name][:_DIGITS]}… → {here[name][:_DIGITS]}…)"
            )
    return sorted(lines)


def changed_facts(facts: Facts, before: Facts) -> dict[str, Any]:
    """Return what a session of a run has otherwise than the one before, for the manifest."""
    return {key: facts[key] for key in _OF_SESSION if facts.get(key) != before.get(key)}


def sessions_of(record: Facts) -> list[dict[str, Any]]:
    """Return a manifest as it would be of the session that began the run, and of each later one."""
    found, sessions = [dict(record)], record.get("sessions")
    for each in sessions if isinstance(sessions, list) else []:
        found.append({**found[-1], **(each if isinstance(each, dict) else {})})
    return found


def _texts(record: Facts, key: str) -> dict[str, str]:
    """Return texts by name from a record that may come from anywhere; {} for anything else."""
    found = record.get(key)
    return {str(name): str(each) for name, each in found.items()} if isinstance(found, dict) else {}
