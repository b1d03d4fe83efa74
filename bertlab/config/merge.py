"""Merges files and arguments into a :class:`Request`: a later one wins, key by key.

Objectives are a mapping from name to arguments inside; a file may list them, a plugin without
arguments may be just its name, and ``nsp: null`` takes an objective out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from bertlab.config.request import (
    ARGUMENT,
    SECTION,
    TEXTS,
    Request,
    check_head_name,
    check_one_kind,
    place,
    take_dotted,
)
from bertlab.config.shipped import find_config
from bertlab.config.yaml_files import (
    Config,
    NoValue,
    load_argument,
    needs_value,
    nested,
    parse_inline,
    plain,
    read_config,
    split_arguments,
    value_at,
)
from bertlab.errors import ConfigError, nearest
from bertlab.plugins.index import installed, load_class

# sections of one plugin, and the attribute of a request that names it; a section above comes first
PLUGIN_SECTIONS = {
    "model.encoder": "encoder",
    "model.head": "head",
    "model.adapter": "adapter",
    "model.optimizer": "optimizer",
    "model.optimizer.schedule": "schedule",
    "data.tokenizer_kind": "tokenizer",
}
_GROUPS = ("model", "data", "trainer", "checkpoint", "seed")
# what a section may be, in words
_EXPECTED = {
    **dict.fromkeys(PLUGIN_SECTIONS, "a name, or {name: NAME, …}"),
    "model.objectives": "[mlm, nsp]",
    **dict.fromkeys(("model.metrics", "data.transforms"), "[NAME, …]"),
    "data.mixing": "{temperature: 2}",
    "data.objectives": "their text: {corpus: PATH}",
    "data.heads": "data of heads by name: {NAME: {source: PATH}, …}",
}


def read_request(
    argv: Sequence[str],
    base: Config | None = None,
    base_name: str = "",
    checkpoint: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Request:
    """Merge the config files that ``argv`` names, and its arguments.

    Args:
        argv: arguments after the subcommand; ``--config`` takes a file or a name.
        base: a config to start from, that of a checkpoint or a mapping of Python's.
        base_name: what messages call it.
        checkpoint: the file that stores the base, if one does: it brings the keys of a closed list
            only, and none may name a class.
        settings: values by dotted key, over those of files.
    """
    merge = _Merge(Request(tuple(argv), checkpoint=checkpoint))
    if base is not None and checkpoint is not None:
        from bertlab.config.checkpoint_config import may_bring  # noqa: PLC0415  not for --help

        base, merge.request.not_brought = may_bring(base)
    if base is not None:
        merge.add_file(Path(base_name), plain(base))
    given: list[tuple[str, object]] = list(plain(settings or {}).items())
    for key, value, _ in split_arguments(argv):
        if key in ("--config", "-c"):
            path = find_config(needs_value(key, value))
            merge.add_file(path, read_config(path))
        elif key == "--print_config":
            merge.request.prints = value or ""
        elif key in ("-h", "--help"):
            merge.request.helps = "all" if value == "all" else "short"
        elif re.match(r"--\w", key):
            given.append((key[2:], NoValue() if value is None else value))
        else:
            told = f"found {key!r} alone, expected --KEY VALUE (a list: --KEY '[a, b]')"
            raise ConfigError(f"{told}; the names of configs stand before all keys")
    for name, each in given:  # after all files: an argument wins wherever it stands on the line
        merge.add_argument(name, each)
    return merge.merged()


@dataclass
class _Layer:
    """The sections of a file or an argument; with ``key``, the value of an argument at one key."""

    source: str
    content: Config
    key: str = ""

    @property
    def where(self) -> str:
        return place(self.source)


@dataclass
class _Merge:
    """Takes files and arguments in, one after the other; the plugins are known after the last."""

    request: Request
    layers: list[_Layer] = field(default_factory=list)
    heads: dict[str, str | None] = field(default_factory=dict)  # plugins, None until it is said
    taken_out: set[str] = field(default_factory=set)  # names of heads

    def add_file(self, path: Path, given: Config) -> None:
        """Take in the content of a config file."""
        if given.get("ckpt_path") is not None:
            raise ConfigError(f"{path}: ckpt_path: found in a config, expected --ckpt_path")
        content = deepcopy(given)
        dotted = self._add_content(str(path) if path.name else "", content)
        self.request.files.append((path, content | dotted))

    def add_argument(self, key: str, value: object) -> None:
        """Take in an argument; a text is YAML where its key is of a section."""
        source, (section, _, last) = f"{ARGUMENT}{key}", key.rpartition(".")
        if key in ("ckpt_path", "head"):
            given = needs_value(source, None if isinstance(value, NoValue) else str(value))
            setattr(self.request, "one_head" if key == "head" else key, given)
        elif key[-1] == "+" and SECTION.fullmatch(key[:-1]):
            told = f"is a section, expected a key in it, as in --{key[:-1]}.KEY VALUE"
            raise ConfigError(f"{key[:-1]}: {told}")
        elif SECTION.fullmatch(key):
            # an objective of its own leaves the others as they are, the default ones too
            self.request.objectives_named |= key.startswith("model.objectives.")
            self._add_content(source, nested(key, _open(key, value)))
        elif last == "name" and (section in PLUGIN_SECTIONS or section.startswith("model.heads.")):
            text = needs_value(source, None) if isinstance(value, NoValue) else value
            self._add(_Layer(source, nested(key, text)))
        else:
            self.layers.append(_Layer(source, {key: value}, key))

    def _add_content(self, source: str, content: Config) -> Config:
        """Take in sections, and each key with dots in them by itself; return those keys."""
        dotted = take_dotted(content)
        self._add(_Layer(source, content))
        for key, value in dotted:
            if not isinstance(value_at(content, key), dict | None):
                raise ConfigError(f"{place(source)}{key}: given twice, once with dots; keep one")
            self.request.objectives_named |= key.startswith("model.objectives.")
            self._add_content(source, nested(key, value))
        return dict(dotted)

    def _add(self, layer: _Layer) -> None:
        """Note the plugins that a layer names, and bring its sections into one form."""
        request, content, where = self.request, layer.content, layer.where
        for section in ("model", "data"):
            if not isinstance(content.get(section) or {}, dict):
                raise _no_section(where, section, content[section])
        for section, attribute in PLUGIN_SECTIONS.items():
            if (name := _name_plugin(content, section, where)) is not None:
                setattr(request, attribute, name)
                request.encoder_named |= section == "model.encoder"
        model, data = content.get("model") or {}, content.get("data") or {}
        if model.get("objectives") is not None:
            model["objectives"] = self._name_objectives(model["objectives"], where)
        for section, part, key in (("model", model, "metrics"), ("data", data, "transforms")):
            if part.get(key) is not None:
                expected = "names, or a mapping of names to their arguments"
                items = _entries(part[key], f"{where}{section}.{key}", expected)
                part[key] = {name: settings or {} for name, settings in items}
                setattr(request, key, list(part[key]))
        if "heads" in model:
            model["heads"] = self._name_heads(model["heads"], f"{where}model.heads")
        self.layers.append(layer)

    def _name_objectives(self, given: object, where: str) -> Config:
        """Update the request's objectives; return their arguments by name."""
        request, key = self.request, f"{where}model.objectives"
        if not isinstance(given, list | dict) or given == []:
            found = "none" if given == [] else repr(given)
            raise ConfigError(f"{key}: found {found}, expected names: [mlm, nsp]")
        expected = "a name and its arguments, as in {mlm: {rate: 0.15}}, or null to take it out"
        items = _entries(given, key, expected)
        # {sop: {}} replaces the default mlm and nsp; {nsp: null} only takes one of them out
        adds = any(settings is not None for _, settings in items)
        if isinstance(given, list) or (adds and not request.objectives_named):
            request.objectives = []
        request.objectives_named = True
        for name, settings in items:
            if settings is None:
                request.objectives = [other for other in request.objectives if other != name]
            elif name not in request.objectives:
                request.objectives.append(name)
        return dict(items)

    def _name_heads(self, given: object, key: str) -> Config:
        """Update the heads; return what is said of each as a mapping."""
        if not isinstance(given, Mapping | None):
            example = "{topic: {name: single_sentence}, …}"
            raise ConfigError(f"{key}: found {given!r}, expected heads by name: {example}")
        found: Config = {}
        for name, each in (given or {}).items():
            check_head_name(name, key)
            if each is None:
                self.heads.pop(name, None)
                self.taken_out.add(name)
                continue
            settings = {"name": each} if isinstance(each, str) else each
            if not isinstance(settings, Mapping):
                expected = "the name of a head, or {name: NAME, …}; null takes it out"
                raise ConfigError(f"{key}.{name}: found {each!r}, expected {expected}")
            plugin = settings.get("name", self.heads.get(name))
            if not isinstance(plugin, str | None):
                raise ConfigError(f"{key}.{name}.name: found {plugin!r}, expected a name")
            self.heads[name] = plugin
            self.taken_out.discard(name)
            found[name] = dict(settings)
        return found

    def merged(self) -> Request:
        """Return the request with the values of all layers, below the plugins that are named."""
        request = self.request
        for name, plugin in self.heads.items():
            if plugin is None:
                raise ConfigError(
                    f"model.heads.{name}.name: found none, expected the name of a head "
                    f"({', '.join(installed('head'))})"
                )
            request.heads[name] = plugin
        named = request.objectives if request.objectives_named else []
        check_one_kind(request.head, request.heads, named)
        if request.fine_tunes:  # which takes the default objectives out
            request.objectives = named
        for layer in self.layers:
            if layer.key:
                self._set(layer.key, layer.content[layer.key], layer.source)
            else:
                self._keep_named(layer)
                self._merge(request.values, layer.content, layer, "")
        self._name_source()
        request.check_text()
        request.without_hooks = [str(each) for each in _listed(request.values.get("without_hooks"))]
        return request

    def _name_source(self) -> None:
        """Note the source of a corpus that has settings: ``{source: sqlite, table: texts}``."""
        data = self.request.values.get("data") or {}
        given = loaded(data.get("corpus"))
        if isinstance(given, dict) and "source" in given:
            data["corpus"], self.request.corpus_source = given, str(given["source"])

    def _keep_named(self, layer: _Layer) -> None:
        """Take what a layer says of plugins that are not named now out of its content."""
        request = self.request
        model, data = layer.content.get("model") or {}, layer.content.get("data") or {}
        plugins = {key: getattr(request, each) for key, each in PLUGIN_SECTIONS.items()}
        for section, name in (plugins | request.head_sections).items():
            self._drop_others(layer, section, name)
        for part, key in ((model, "objectives"), (model, "metrics"), (data, "transforms")):
            given = part.pop(key, None) or {}
            # names [mlm], {mlm: {rate: 0.2}, nsp: {}} -> {mlm: {rate: 0.2}}
            if kept := {name: given[name] for name in getattr(request, key) if given.get(name)}:
                part[key] = kept
        for part in (model, data):
            if not isinstance(heads := part.get("heads"), dict):
                continue
            part["heads"] = {name: heads[name] for name in heads if name in self.heads}
            for name in heads.keys() - self.heads.keys() - self.taken_out if layer.where else ():
                there = f"it has: {', '.join(self.heads)}" if self.heads else "there is none"
                raise ConfigError(
                    f"{layer.where}data.heads.{name}: model.heads has no {name}"
                    f"{nearest(str(name), self.heads)} ({there})"
                )

    def _drop_others(self, layer: _Layer, section: str, name: str | None) -> None:
        """Drop the arguments that a layer gives to another plugin than the one that is named."""
        # another encoder keeps those that it takes as well, another optimiser those of every one
        given = value_at(layer.content, section)
        if not isinstance(given, dict) or given.get("name", name) == name:
            return
        kept: Iterable[str] = ()
        if section == "model.optimizer":
            from bertlab.model.optimizer_config import (  # noqa: PLC0415  torch, not for --help
                COMMON_OPTIMIZER_KEYS,
            )

            kept = (*COMMON_OPTIMIZER_KEYS, "schedule")
        elif section == "model.encoder" and name and name in installed("encoder"):
            kept = signature(load_class("encoder", name, object)).parameters
        gone = [each for each in given if each not in kept and each != "name"]
        if gone and not section.startswith("model.heads."):
            keys = ", ".join(f"{section}.{each}" for each in gone)
            said = f"{layer.where}{keys}: set for {given['name']}, not for {name}"
            self.request.left_out.append(said)
        for each in gone:
            del given[each]
        given["name"] = name

    def _merge(self, values: Config, content: Config, layer: _Layer, above: str) -> None:
        """Merge a layer's section into that of the layers before it."""
        for name, value in content.items():
            key = f"{above}{name}"
            if not SECTION.fullmatch(key):
                # a text is no YAML: "[a]" is not a list
                is_text = key in TEXTS and isinstance(value, str)
                values[name] = [value] if is_text else _of_one_class(values.get(name), value)
                self._note(key, layer.source)
            elif isinstance(value, dict):
                self._merge(values.setdefault(name, {}), value, layer, f"{key}.")
            elif value is not None:
                raise _no_section(layer.where, key, value)

    def _set(self, key: str, value: object, source: str) -> None:
        """Set the value of an argument; ``KEY+`` appends, and KEY may lie inside of a value."""
        key, appends = key.removesuffix("+"), key.endswith("+")
        *parts, last = key.split(".")
        section = self.request.values
        for depth, part in enumerate(parts, start=1):
            if SECTION.fullmatch(".".join(parts[:depth])):
                section = section.setdefault(part, {})
                continue
            before = section.get(part)
            if part == "corpus" and not isinstance(loaded(before), dict):
                before = None  # files give way to a source with settings
            section[part], section = _opened(before)
            if "class_path" in section and [*parts, last][depth] not in _OF_CLASS:
                section = section.setdefault("init_args", {})  # --trainer.callbacks.monitor
        if key in TEXTS and value is not None:
            given = needs_value(source, None) if isinstance(value, NoValue) else value
            value = given if isinstance(given, list) else [given]
            # --text "#1 film" --text "[a]" are two
            appends = appends or self.request.is_argument(key)
        if appends:
            value = [*_listed(section.get(last)), *_listed(value)]
        section[last] = loaded(value) if ".columns." in key or ".validation." in key else value
        self._note(key, source)

    def _note(self, key: str, source: str) -> None:
        sources = self.request.source
        for each in [each for each in sources if each.startswith(f"{key}.")]:
            del sources[each]
        sources[key] = source


def _entries(given: object, key: str, expected: str) -> list[tuple[str, Config | None]]:
    """Return names and arguments of plugins that a config lists or maps: mlm, {mlm: {…}}."""
    entries = given if isinstance(given, list) else [given]
    pairs = (each.items() if isinstance(each, dict) else [(each, {})] for each in entries)
    items: list[tuple[Any, Any]] = [pair for each in pairs for pair in each]
    for name, settings in items:
        if not isinstance(name, str) or not isinstance(settings, dict | None):
            raise ConfigError(f"{key}: found {name!r}: {settings!r}, expected {expected}")
    return items


def _name_plugin(content: Config, section: str, where: str) -> str | None:
    """Return the plugin name of a section such as ``model.head``; it may be just that name."""
    above, _, key = section.rpartition(".")
    found = value_at(content, above)
    if not isinstance(found, dict):
        return None
    if isinstance(found.get(key), str):
        found[key] = {"name": found[key]}
    name = found[key].get("name") if isinstance(found.get(key), dict) else None
    if not isinstance(name, str | None):
        raise ConfigError(f"{where}{section}.name: found {name!r}, expected a name")
    return name


def _open(key: str, value: object) -> object:
    """Return what an argument gives for a section: a mapping as YAML or in a file, or a name."""
    text = needs_value(f"{ARGUMENT}{key}", None) if isinstance(value, NoValue) else value
    if not isinstance(text, str):
        return text
    given = parse_inline(text, key, _EXPECTED.get(key, "{NAME: {…}, …}"))
    if isinstance(given, dict):
        return given
    if key in PLUGIN_SECTIONS:
        return text
    if key in _GROUPS:
        if Path(text).is_file():
            return read_config(Path(text))
        meant = {"seed": "seed_everything", "model": "model.init_from"}.get(key)
        tip = f"; did you mean {meant!r}?" if meant else ""
        found = given if isinstance(given, int | float | list) else repr(text)
        raise ConfigError(f"{key}: found {found}, expected keys below it, or a file with them{tip}")
    return given


def _no_section(where: str, key: str, value: object) -> ConfigError:
    rows = _EXPECTED.get(key, "where its rows are: {source: …}")
    expected = rows if key.startswith("data.") else "a mapping of keys to values"
    return ConfigError(f"{where}{key}: found {value!r}, expected {expected}")


# of a class that a config names, in jsonargparse's words
_OF_CLASS = ("class_path", "init_args", "dict_kwargs")


def _of_one_class(before: object, value: object) -> object:
    """Return a value; of a class that was named before, its arguments over those given before."""
    if not isinstance(before, dict) or not isinstance(value, dict) or "class_path" not in value:
        return value
    if before.get("class_path") != value["class_path"]:
        return value
    arguments = {**(before.get("init_args") or {}), **(value.get("init_args") or {})}
    return {**value, "init_args": arguments} if arguments else value


def _opened(value: object) -> tuple[object, Config]:
    """Return a value that holds a mapping, and the mapping: of a class, and of a list the last."""
    value = loaded(value)
    if isinstance(value, list) and value:
        *others, last = value
        last, inner = _opened(last)
        return [*others, last], inner
    if isinstance(value, str):  # EarlyStopping
        value = {"class_path": value}
    inner = dict(value) if isinstance(value, dict) else {}
    return inner, inner


def _listed(value: object) -> list[object]:
    value = loaded(value)
    return [] if value is None else value if isinstance(value, list) else [value]


def loaded(value: object) -> object:
    """Return what a text is as YAML: a list, a mapping or quoted text; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("[", "{", "'", '"'):
        try:
            return load_argument(value)
        except yaml.YAMLError:
            pass  # the parser says so
    return value
