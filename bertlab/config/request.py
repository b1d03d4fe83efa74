"""What a command is asked for: files, arguments and stored configs, merged into one mapping.

Each is a mapping, and a later one wins key by key; ``source`` says where each value comes from. The
plugins that they name are found on the way, as these decide which keys there are. Objectives are a
mapping from name to arguments inside; a file may list them, and ``nsp: null`` takes one out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from bertlab.config.heads import check_head_name, check_one_kind
from bertlab.config.plain_yaml import load_argument
from bertlab.config.shipped import find_config
from bertlab.config.yaml_files import (
    Config,
    NoValue,
    needs_value,
    parse_inline,
    read_config,
    split_arguments,
    value_at,
)
from bertlab.errors import CommandError, ConfigError, nearest
from bertlab.plugins.index import installed, load_class

DEFAULT_OBJECTIVES = ("mlm", "nsp")
# sections of one plugin, and the attribute of a request that names it; a section above comes first
_PLUGIN = {
    "model.encoder": "encoder",
    "model.head": "head",
    "model.optimizer": "optimizer",
    "model.optimizer.schedule": "schedule",
    "data.tokenizer_kind": "tokenizer",
}
# mappings of keys; what stands at any other key is a value, and replaced as a whole
_SECTION = re.compile(
    r"model|data|trainer|checkpoint|seed|data\.(tokenizer_kind|mixing)|(model|data)\.heads(\.[^.]+)?"
    r"|data\.objectives|model\.(encoder|head|optimizer(\.schedule)?)"
    r"|model\.(objectives|metrics)(\.[^.]+)?"
)
# what an argument may give for a section, in words
_EXAMPLES = {
    **dict.fromkeys(_PLUGIN, "a name, or {name: NAME, …}"),
    "model.objectives": "[mlm, nsp]",
    "model.metrics": "[NAME, …]",
    "data.mixing": "{temperature: 2}",
    "data.objectives": "{corpus: PATH}",
    "stages": "{NAME: {share: 0.9}, …}",
}
_HEADS = "{NAME: {…}, …}"
_EXPECTED = {
    "data.objectives": "their text: {corpus: PATH}",
    "data.heads": "data of heads by name",
}
_ARGUMENT = "--"  # how the source of a value begins that an argument gives
# keys of model.optimizer that stay where another optimiser is chosen
OF_EVERY_OPTIMIZER = (
    *("learning_rate", "weight_decay", "warmup_steps", "schedule", "schedule_steps"),
    *("layer_decay", "frozen_layers"),
)


@dataclass
class Request:
    """Config files and arguments of one command, merged.

    Attributes:
        argv: the arguments as they were given, files included.
        files: each config file's path and content, in the order given.
        checkpoint: the file whose stored config is the first of ``files``, if one is.
        values: all of it merged, below the sections of the plugins that are named.
        source: where each value comes from, by key: a file, or the argument.
        encoder: entry-point name of the encoder.
        encoder_named: whether a file or argument named it; else it is the default one.
        objectives: entry-point names of the objectives, in order.
        objectives_named: whether a file or argument named them; else they are the default ones.
        metrics: entry-point names of further metrics.
        optimizer: entry-point name of the optimiser, or a class of ``torch.optim``.
        schedule: entry-point name of the learning rate's schedule.
        tokenizer: entry-point name of the kind of tokenizer to train, if given anywhere.
        head: entry-point name of the head, for fine-tuning; there are no objectives then.
        heads: those of several heads at once, by name; objectives may stand beside them.
        one_head: ``--head``: the one of several that is asked for.
        ckpt_path: ``--ckpt_path``, if given.
        helps: whether ``--help`` is among the arguments.
        sizes: ``name`` and arguments of the encoder of given weights: defaults of its keys.
        left_out: keys of files that belong to another plugin than is named now, in words.
    """

    argv: tuple[str, ...] = ()
    files: list[tuple[Path, Config]] = field(default_factory=list)
    checkpoint: Path | None = None
    values: Config = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    encoder: str = "bert"
    encoder_named: bool = False
    objectives: list[str] = field(default_factory=lambda: list(DEFAULT_OBJECTIVES))
    objectives_named: bool = False
    metrics: list[str] = field(default_factory=list)
    optimizer: str = "adamw"
    schedule: str = "linear"
    tokenizer: str | None = None
    head: str | None = None
    heads: dict[str, str] = field(default_factory=dict)
    one_head: str | None = None
    ckpt_path: str | None = None
    helps: bool = False
    sizes: Config | None = None
    left_out: list[str] = field(default_factory=list)

    @property
    def run_name(self) -> str:
        """What a run is called by default: its config's name; ``finetune-…`` with a head."""
        name = self.files[-1][0].stem if self.files else "run"
        return f"finetune-{name}" if self.fine_tunes else name

    @property
    def fine_tunes(self) -> bool:
        """Whether there is a head, or several."""
        return self.head is not None or bool(self.heads)

    @property
    def named_head(self) -> str:
        """What messages call the head, or the heads."""
        return self.head or ", ".join(self.heads)

    @property
    def head_sections(self) -> dict[str, str]:
        """The plugin of each head by its section: ``model.head``, ``model.heads.NAME``."""
        single = {} if self.head is None else {"model.head": self.head}
        return single | {f"model.heads.{name}": plugin for name, plugin in self.heads.items()}

    @property
    def init_from(self) -> str | None:
        """``model.init_from``, if given anywhere."""
        return self._text("model.init_from")

    @property
    def init_optimizer(self) -> bool:
        """``model.init_optimizer``."""
        return str(value_at(self.values, "model.init_optimizer")).lower() == "true"

    @property
    def run_dir(self) -> str | None:
        """``run_dir``, if given anywhere."""
        return self._text("run_dir")

    @property
    def stages(self) -> object:
        """``stages``, if given anywhere; not checked yet."""
        return self.values.get("stages")

    def take_sizes(self, sizes: Config) -> None:
        """Take encoder and sizes of given weights, which a config need not repeat."""
        self.sizes = sizes
        self.encoder = self.encoder if self.encoder_named else sizes["name"]

    def where(self, key: str) -> str:
        """Return ``"FILE: "`` of the file that a value comes from; ``""`` of an argument."""
        parts = key.split(".")
        above = (".".join(parts[:number]) for number in range(len(parts), 0, -1))
        below = (each for each in self.source if each.startswith(f"{key}."))
        found = next((self.source[each] for each in (*above, *below) if each in self.source), "--")
        return "" if found.startswith(_ARGUMENT) else f"{found}: "

    def is_argument(self, key: str) -> bool:
        """Whether an argument gives a value, or something below a key."""
        given = (each for each in self.source if f"{each}.".startswith(f"{key}."))
        return any(self.source[each].startswith(_ARGUMENT) for each in given)

    def part_of(self, source: str) -> Config:
        """Return the values that come from a file; from all arguments if it is ``"--"``."""
        found: Config = {}
        for key, each in self.source.items():
            if each == source or (source == _ARGUMENT and each.startswith(source)):
                section = found
                for part in key.split(".")[:-1]:
                    section = section.setdefault(part, {})
                section[key.rpartition(".")[2]] = value_at(self.values, key)
        return found

    def _text(self, key: str) -> str | None:
        found = value_at(self.values, key)
        if not isinstance(found, str | None):
            raise ConfigError(
                f"{self.where(key)}{key}: found {str(found)[:80]}, expected a text or null"
            )
        return None if found == "null" else found


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
        checkpoint: the file that stores the base, if one does: nothing of the base may name a
            class then.
        settings: values by dotted key, over those of files.
    """
    merge = _Merge(Request(tuple(argv), checkpoint=checkpoint))
    if base is not None:
        merge.add_file(Path(base_name), base)
    given: list[tuple[str, object]] = list((settings or {}).items())
    for key, value, _ in split_arguments(argv):
        if key in ("--config", "-c"):
            path = find_config(needs_value(key, value))
            merge.add_file(path, read_config(path))
        elif key == "--print_config":
            raise CommandError(f"{key}: is an option of the command bertlab fit alone")
        elif key in ("-h", "--help"):
            merge.request.helps = True
        elif re.match(r"--\w", key):
            given.append((key[2:], NoValue() if value is None else value))
        else:
            raise ConfigError(
                f"found {key!r} on its own, expected --KEY VALUE (a list: --KEY '[a, b]')"
            )
    for name, each in given:  # after all files: an argument wins wherever it stands on the line
        merge.add_argument(name, each)
    return merge.merged()


@dataclass
class _Layer:
    """A file's sections, or one argument: ``key`` is of a value that does not replace a section."""

    source: str
    content: Config
    key: str | None = None

    @property
    def where(self) -> str:
        return "" if self.source.startswith(_ARGUMENT) else f"{self.source}: "


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
            raise ConfigError(
                f"{path}: ckpt_path: found in a config, expected an argument: --ckpt_path"
            )
        content = self._add(_Layer(str(path), deepcopy(given))).content
        self.request.files.append((path, content))

    def add_argument(self, key: str, value: object) -> None:
        """Take in an argument; a text is YAML where its key is of a section."""
        request, source = self.request, f"{_ARGUMENT}{key}"
        if key in ("ckpt_path", "head"):
            text = None if isinstance(value, NoValue) else str(value)
            setattr(request, "one_head" if key == "head" else key, needs_value(source, text))
            return
        if key == "model":
            raise ConfigError(f"{key}: is a section, expected a key in it, as in --{key}.KEY VALUE")
        section, _, last = key.rpartition(".")
        if key == "stages" or _SECTION.fullmatch(key):
            value = _open(key, value)
            if key.startswith("model.objectives."):
                request.objectives_named = True  # the default ones too
        elif last != "name" or (section not in _PLUGIN and not section.startswith("model.heads.")):
            self.layers.append(_Layer(source, {key: value}, key))
            return
        for part in reversed(key.split(".")):
            value = {part: value}
        assert isinstance(value, dict)
        self._add(_Layer(source, value))

    def _add(self, layer: _Layer) -> _Layer:
        """Note the plugins that a layer names, and bring its sections into one form."""
        request, content, where = self.request, layer.content, layer.where
        for section in ("model", "data"):
            if not isinstance(content.get(section) or {}, dict):
                raise _no_section(where, section, content[section])
        for section, attribute in _PLUGIN.items():
            name = _name_plugin(content, section, where)
            if name is not None:
                setattr(request, attribute, name)
                request.encoder_named |= section == "model.encoder"
        model = content.get("model") or {}
        if model.get("objectives") is not None:
            model["objectives"] = self._name_objectives(model["objectives"], where)
        if model.get("metrics") is not None:
            model["metrics"] = self._name_metrics(model["metrics"], where)
        if "heads" in model:
            model["heads"] = self._name_heads(model["heads"], where)
        self.layers.append(layer)
        return layer

    def _name_objectives(self, given: object, where: str) -> Config:
        """Update the request's objectives; return their arguments by name."""
        request, key = self.request, f"{where}model.objectives"
        if isinstance(given, list):
            if not given:
                raise ConfigError(f"{key}: found none, expected names: [mlm, nsp]")
            request.objectives = []
            items = [pair for each in given for pair in _pairs(each)]
        elif isinstance(given, dict):
            # {sop: {}} replaces the default mlm and nsp; {nsp: null} only takes one of them out
            if not request.objectives_named and any(each is not None for each in given.values()):
                request.objectives = []
            items = list(given.items())
        else:
            raise ConfigError(f"{key}: found {given!r}, expected names: [mlm, nsp]")
        request.objectives_named = True
        for name, setting in items:
            if not isinstance(name, str) or not isinstance(setting, dict | None):
                raise ConfigError(
                    f"{key}: found {name!r}: {setting!r}, expected a name and its arguments, as in "
                    "{mlm: {rate: 0.15}}, or null to take it out"
                )
            if setting is None:
                request.objectives = [other for other in request.objectives if other != name]
            elif name not in request.objectives:
                request.objectives.append(name)
        return dict(items)

    def _name_metrics(self, given: object, where: str) -> Config:
        """Set the request's metrics; return their arguments by name."""
        entries = given if isinstance(given, list) else [given]
        items = [pair for each in entries for pair in _pairs(each)]
        for name, settings in items:
            if not isinstance(name, str) or not isinstance(settings, dict | None):
                raise ConfigError(
                    f"{where}model.metrics: found {name!r}: {settings!r}, expected names, or a "
                    "mapping of names to their arguments"
                )
        found = {name: settings or {} for name, settings in items}
        self.request.metrics = list(found)
        return found

    def _name_heads(self, given: object, where: str) -> Config:
        """Update the heads; return what is said of each as a mapping, None of one taken out."""
        key = f"{where}model.heads"
        if not isinstance(given, Mapping | None):
            raise ConfigError(
                f"{key}: found {given!r}, expected heads by name: {{topic: {{name: "
                "single_sentence}, …}"
            )
        found: Config = {}
        for name, each in (given or {}).items():
            check_head_name(name, key)
            if each is None:
                self.heads.pop(name, None)
                self.taken_out.add(name)
                continue
            settings = {"name": each} if isinstance(each, str) else each
            if not isinstance(settings, Mapping):
                raise ConfigError(
                    f"{key}.{name}: found {each!r}, expected the name of a head, or {{name: NAME, "
                    "…}; null takes it out"
                )
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
            if layer.key is None:
                self._keep_named(layer)
                self._merge(request.values, layer.content, layer, "")
            else:
                self._set(layer.key, layer.content[layer.key], layer.source)
        self._check_text()
        return request

    def _keep_named(self, layer: _Layer) -> None:
        """Take what a file says of plugins that are not named now out of its content."""
        request = self.request
        model, data = layer.content.get("model") or {}, layer.content.get("data") or {}
        plugins = {key: getattr(request, each) for key, each in _PLUGIN.items()}
        for section, name in (plugins | request.head_sections).items():
            self._drop_others(layer, section, name)
        for key, names in (("objectives", request.objectives), ("metrics", request.metrics)):
            given = model.pop(key, None) or {}
            # names [mlm], {mlm: {rate: 0.2}, nsp: {}} -> {mlm: {rate: 0.2}}
            if kept := {name: given[name] for name in names if given.get(name)}:
                model[key] = kept
        for name in data.get("heads") or () if isinstance(data.get("heads"), dict) else ():
            if layer.where and name not in self.heads and name not in self.taken_out:
                there = f"it has: {', '.join(self.heads)}" if self.heads else "there is none"
                raise ConfigError(
                    f"{layer.where}data.heads.{name}: model.heads has no {name}"
                    f"{nearest(str(name), self.heads)} ({there})"
                )
        for part in (model, data):
            if isinstance(heads := part.get("heads"), dict):
                part["heads"] = {name: heads[name] for name in heads if name in self.heads}

    def _drop_others(self, layer: _Layer, section: str, name: str | None) -> None:
        """Drop the arguments that a layer gives to another plugin than the one that is named.

        Another encoder keeps those that it takes as well, another optimiser those of every one.
        """
        given = value_at(layer.content, section)
        if not isinstance(given, dict) or given.get("name", name) == name:
            return
        kept: Iterable[str] = ()
        if section == "model.optimizer":
            kept = OF_EVERY_OPTIMIZER
        elif section == "model.encoder" and name in installed("encoder"):
            kept = signature(load_class("encoder", name, object)).parameters
        gone = [each for each in given if each not in kept and each != "name"]
        if gone and not section.startswith("model.heads."):
            keys = ", ".join(f"{section}.{each}" for each in gone)
            self.request.left_out.append(
                f"{layer.where}{keys}: set for {given['name']}, not for {name}"
            )
        for each in gone:
            del given[each]
        given["name"] = name

    def _merge(self, values: Config, content: Config, layer: _Layer, above: str) -> None:
        """Merge a layer's section into that of the layers before it."""
        for name, value in content.items():
            key = f"{above}{name}"
            if _SECTION.fullmatch(key):
                if isinstance(value, dict):
                    self._merge(values.setdefault(name, {}), value, layer, f"{key}.")
                elif value is not None:
                    raise _no_section(layer.where, key, value)
            else:
                values[name] = _of_one_class(values.get(name), value)
                self._note(key, layer.source)

    def _set(self, key: str, value: object, source: str) -> None:
        """Set the value of an argument; ``KEY+`` appends, and KEY may lie inside of a value."""
        key, appends = key.removesuffix("+"), key.endswith("+")
        section, path, last = self.request.values, "", key.rpartition(".")[2]
        for part in key.split(".")[:-1]:
            path = f"{path}.{part}".lstrip(".")
            inner = section.get(part)
            if not _SECTION.fullmatch(path):
                section[part], held = _opened(inner)
                if "class_path" in held and path.rpartition(".")[2] != "init_args":
                    # --trainer.callbacks.monitor, or --trainer.callbacks.init_args.monitor
                    below = key.removeprefix(f"{path}.").split(".")[0]
                    if below not in ("class_path", "init_args", "dict_kwargs"):
                        held = held.setdefault("init_args", {})
                section = held
            else:
                section = section.setdefault(part, {})
        if appends:
            value = [*_listed(section.get(last)), *_listed(value)]
        section[last] = value
        self._note(key, source)

    def _note(self, key: str, source: str) -> None:
        sources = self.request.source
        for each in [each for each in sources if each.startswith(f"{key}.")]:
            del sources[each]
        sources[key] = source

    def _check_text(self) -> None:
        """Refuse text of objectives beside heads that is given otherwise than it is read."""
        request = self.request
        data = request.values.get("data") or {}
        text = data.get("objectives")
        if request.objectives and request.heads:
            if "corpus" in data:
                raise ConfigError(
                    f"{request.where('data.corpus')}data.corpus: beside heads the text of "
                    "objectives is data.objectives.corpus"
                )
        elif not text or request.is_argument("data.objectives"):
            pass  # with --ckpt_path the run's config may have the heads
        elif not request.objectives_named:
            raise ConfigError(
                f"{request.where('data.objectives')}data.objectives: found text of objectives, but "
                "no objectives beside heads; expected model.objectives, as in [mlm]"
            )
        elif not request.heads:
            raise ConfigError(
                f"{request.where('data.objectives')}data.objectives: without model.heads the text "
                "is data.corpus"
            )
        if request.objectives_named and not request.objectives:  # they are taken out
            data.pop("objectives", None)
            if isinstance(mixing := data.get("mixing"), dict):
                mixing.pop("objectives", None)


def _pairs(entry: object) -> Iterator[tuple[Any, Any]]:
    """Yield name and arguments of an entry of a list of plugins: mlm, or {mlm: {rate: 0.2}}."""
    yield from entry.items() if isinstance(entry, dict) else [(entry, {})]


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
    if isinstance(value, NoValue):
        needs_value(f"{_ARGUMENT}{key}", None)
    if not isinstance(value, str):
        return value
    given = parse_inline(value, key, _EXAMPLES.get(key, _HEADS))
    if key in _PLUGIN and not isinstance(given, dict):
        return value
    if isinstance(given, str) and Path(value).is_file() and key in _GROUPS:
        return read_config(Path(value))
    if not isinstance(given, dict) and key in _EXAMPLES and key.startswith("data."):
        raise ConfigError(f"{key}: found {given!r}, expected {_EXAMPLES[key]}")
    if not isinstance(given, dict) and key in _GROUPS:
        meant = "; did you mean 'seed_everything'?" if key == "seed" else ""
        found = given if isinstance(given, int | float | list) else repr(value)
        raise ConfigError(
            f"{key}: found {found}, expected keys below it, or a file with them{meant}"
        )
    return given


_GROUPS = ("data", "trainer", "checkpoint", "seed")


def _no_section(where: str, key: str, value: object) -> ConfigError:
    expected = _EXPECTED.get(key, "a mapping of keys to values")
    return ConfigError(f"{where}{key}: found {value!r}, expected {expected}")


def _of_one_class(before: object, value: object) -> object:
    """Return a value; of a class that was named before, its arguments over those given before."""
    if not (isinstance(before, dict) and isinstance(value, dict) and "class_path" in value):
        return value
    if before.get("class_path") != value["class_path"]:
        return value
    arguments = {**(before.get("init_args") or {}), **(value.get("init_args") or {})}
    return {**value, "init_args": arguments} if arguments else value


def _opened(value: object) -> tuple[object, Config]:
    """Return a value that holds a mapping, and the mapping: of a class, and of a list the last."""
    if isinstance(value, str) and value[:1] in "[{":
        value = _loaded(value)
    if isinstance(value, list) and value:
        *others, last = value
        last, inner = _opened(last)
        return [*others, last], inner
    if isinstance(value, str):  # EarlyStopping
        value = {"class_path": value}
    value = dict(value) if isinstance(value, dict) else {}
    return value, value


def _listed(value: object) -> list[object]:
    value = _loaded(value) if isinstance(value, str) and value[:1] in "[{" else value
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _loaded(text: str) -> object:
    try:
        return load_argument(text)
    except yaml.YAMLError:
        return text
