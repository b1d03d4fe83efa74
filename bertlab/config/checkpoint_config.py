"""What the config that a checkpoint stores may bring: names of plugins, and plain values.

A checkpoint may come from anywhere, and a config may name any class of any installed package, with
any arguments (``class_path``). So a stored config is not taken as a user's file is. It names
plugins, which are found in the index, and has plain values (:func:`read_stored_config`). What it
brings to a command is a closed list of keys, which say what is computed and what is read for it
(:func:`may_bring`). So it says nothing of where something is written, and starts no processes. The
rest is the user's to give, by ``--config`` or arguments.
"""

import json
import re
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bertlab.config.named_classes import CLASS_KEYS, advice, is_word, names_class
from bertlab.config.recorded import decides
from bertlab.config.request import SECTION, SEED_PARTS, is_file_name
from bertlab.config.yaml_files import Config, read_config, value_at
from bertlab.errors import BertlabError, CheckpointError, DamagedCheckpointError, ResumeError, warn
from bertlab.plugins.hooks import package_keys

# the closed list: keys of Lightning's sections, and of data what is read, and how, ...
_LISTS = json.loads(Path(__file__).with_name("checkpoint_keys.json").read_text("utf-8"))
_CHECKPOINT, _TEXT, _ROWS = _LISTS["checkpoint"], _LISTS["text"], _LISTS["rows"]
# of Lightning's Trainer; each takes plain values, or words such as gpu, ddp, bf16-mixed
TRAINER_KEYS: frozenset[str] = frozenset(_LISTS["trainer"])
# also plain, but strings of theirs name classes or places: only what is no string is taken
_TRAINER_SWITCHES = frozenset({"logger", "callbacks", "profiler", "plugins"})
_TRAINER = TRAINER_KEYS - {"strategy", "devices", "num_nodes", "barebones", "fast_dev_run"}
_ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")  # others may start processes by themselves
# ... these alone, and all that plugins take
_KEYS = frozenset(
    {"seed_everything", "max_tokens", "max_words", "on_nonfinite", "keep_predictions"}
    | {"model.init_from", "model.init_optimizer", "model.from_scratch"}
    | {f"seed.{part}" for part in SEED_PARTS}
    | {f"trainer.{key}" for key in _TRAINER}
    | {f"checkpoint.{key}" for key in _CHECKPOINT}
    | {f"data.{key}" for key in (*_TEXT, *_ROWS, *_LISTS["batches"])}
    | {f"data.objectives.{key}" for key in _TEXT}
)
_CORE = ("model", "data", "trainer", "checkpoint", "seed")  # packages have no keys below these
_OF_PLUGINS = re.compile(
    r"(model\.(encoder|objectives|head|heads|adapter|metrics|optimizer)|data\.(tokenizer_kind|mixing|transforms))(\..+)?"
)
_OF_HEADS = re.compile(r"data\.heads\.[^.]+\.([^.]+)")
_WRITTEN_TO = {"trainer": "default_root_dir", "checkpoint": "dirpath", "data": "cache_dir"}
_SECTIONS = ("model", "data", "trainer")  # that every config has
_DEEPEST, _MOST_VALUES, _LONGEST = 24, 100_000, 1_000_000
_LARGEST = 2**63


def read_stored_config(found: object, source: str) -> tuple[Config, list[str]]:
    """Return what a checkpoint's config may bring, as a copy, and the keys that it may not."""
    if not isinstance(found, dict):
        raise _damaged(source, "its config", found, "a mapping")
    left_out: list[str] = []
    kept: Config = {}
    for key in _dotted(found, ""):  # which would be another way to a section
        raise _damaged(source, key, "a key with a dot", "a section with the key in it")
    for name, section in found.items():
        kept[name] = dict(section) if isinstance(section, dict) else section
    for name in _SECTIONS:
        if not isinstance(kept.get(name), dict):
            raise _damaged(source, name, kept.get(name), "a mapping of keys to values")
    _take_out(kept, left_out)
    plain = _Copy(source).of(kept, "")
    assert isinstance(plain, dict)
    _check_form(plain, source)
    return plain, left_out


def may_bring(stored: Config) -> tuple[Config, Config]:
    """Return of a stored config what it may bring to a command, and the other values by their keys.

    Whatever else a parser has, a package's keys and those of a later version included, is not
    taken.
    """
    not_brought: Config = {}
    return _listed(stored, "", not_brought), not_brought


def _listed(content: Config, above: str, not_brought: Config) -> Config:
    kept: Config = {}
    for name, value in content.items():
        key = f"{above}{name}"
        if is_listed(key, value):
            kept[name] = value
        elif isinstance(value, dict) and SECTION.fullmatch(key):
            kept[name] = _listed(value, f"{key}.", not_brought)
        elif not SECTION.fullmatch(key) or value is not None:
            not_brought[key] = value
    return kept


def is_listed(key: str, value: object = None) -> bool:
    """Whether a stored config may bring a value at a dotted key."""
    if key == "trainer.accelerator":
        return value is None or value in _ACCELERATORS
    if key == "trainer.logger":  # false: no logs at all
        return isinstance(value, bool | None)
    of_head = _OF_HEADS.fullmatch(key)
    if key in _KEYS or _OF_PLUGINS.fullmatch(key) or (of_head and of_head[1] in _ROWS):
        return True
    said = None if key.partition(".")[0] in _CORE else package_keys().get(key)
    return said is not None and key in said.stored


# what is computed is the same without, so that a run goes on
_WHERE_AND_HOW = re.compile(
    r"trainer\.(devices|num_nodes)|data\.(objectives\.)?(num_workers|prepare_workers|cache_dir)"
)


def check_users_own(asked: Sequence[str], source: Path, command: str) -> None:
    """Say which keys of a stored config only the user may give; an error if a run needs them."""
    apart = [key for key in asked if _WHERE_AND_HOW.fullmatch(key)]
    others = [key for key in asked if key not in apart]
    own = source if source.suffix == ".yaml" else source.parent.parent / "config.yaml"
    record = own if own.is_file() else "RUN/config.yaml"  # its checkpoints lie elsewhere
    if others and command == "fit":
        raise ResumeError(
            f"{source}: its run has {', '.join(others)}, which a checkpoint may not bring "
            "(it could run any code, start processes, or write anywhere); give the run's config, "
            f"after a look at it: --config {record}"
        )
    if others := [key for key in others if decides(key)]:
        warn(f"{source}: {', '.join(others)}: not taken from a checkpoint; give --config {record}")
    # labelled rows have no cache
    caches = [key for key in apart if key.endswith("cache_dir")]
    for key in caches if command != "predict" else ():
        warn(
            f"{key} is not taken from a checkpoint, which may not say where something is "
            f"written; to use that cache again, give --{key} PATH"
        )
    if (more := [key for key in apart if key not in caches]) and command == "fit":
        warn(
            f"{', '.join(more)}: not taken from a checkpoint, which starts no processes; give "
            f"{' '.join(f'--{key} N' for key in more)} to have as many again"
        )


def check_stored(content: Config, source: str) -> None:
    """Let packages check the values of their keys in a config that may come from anywhere."""
    for check in {said.check_stored: None for said in package_keys().values()}:
        if check is not None:
            check(content, source)


# asks for nothing, of keys that a stored config may not bring
_BY_DEFAULT: tuple[Any, ...] = (None, "", [], 0, 1, "auto")


def asks_for_more(file: Path) -> bool:
    """Whether a run's config has callbacks, devices or others that no checkpoint may bring."""
    try:
        stored, left_out = read_stored_config(read_config(file), str(file))
    except BertlabError:  # it was written to meanwhile; what is told is why the run stopped
        return False
    try:
        check_stored(stored, str(file))
    except BertlabError:
        return True
    others = may_bring(stored)[1].values()
    return any(key != "data.cache_dir" for key in left_out) or any(
        each is True or each not in _BY_DEFAULT for each in others
    )


def _dotted(content: dict[object, object], above: str) -> Iterator[str]:
    """Yield the keys of sections that hold a dot."""
    for name, value in content.items():
        key = f"{above}{name}"[:200]
        if "." in str(name):
            yield key
        elif isinstance(value, dict) and SECTION.fullmatch(key):
            yield from _dotted(value, f"{key}.")


def _take_out(config: Config, left_out: list[str]) -> None:
    """Remove what only a user may say: classes of the trainer, and where something is written."""
    settings = config["trainer"]
    for key, value in list(settings.items()):
        if not _may_come(key, value):
            del settings[key]
            if value not in (None, [], ""):
                left_out.append(f"trainer.{key}")
    for section, key in _WRITTEN_TO.items():
        content = config.get(section)
        if isinstance(content, dict) and content.pop(key, None) is not None:
            left_out.append(f"{section}.{key}")


def _may_come(key: object, value: object) -> bool:
    if key in TRAINER_KEYS:
        return not isinstance(value, dict) and (not isinstance(value, str) or is_word(value))
    return key in _TRAINER_SWITCHES and (value is None or isinstance(value, bool))


class _Copy:
    """Copies plain data, and stops at bounds: cycles and data that multiply end there too."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.values = 0

    def of(self, value: object, key: str, depth: int = 0) -> object:
        """Return a copy of ``value``, which stands at ``key``."""
        self.values += 1
        if depth > _DEEPEST or self.values > _MOST_VALUES:
            raise DamagedCheckpointError(
                f"{self.source}: its config is nested deeper than {_DEEPEST} levels or has over "
                f"{_MOST_VALUES:,} values, at {key[:80]}"
            )
        kind = type(value)
        if isinstance(value, dict):
            for name in value:
                if type(name) is not str or not 0 < len(name) <= _LONGEST:
                    raise _damaged(self.source, key or "its config", name, "keys that are text")
                if name in CLASS_KEYS:
                    place = f"{self.source}: {key}"
                    raise CheckpointError(f"{place}: found {name}, which names a class; {advice()}")
            return {
                name: self.of(each, f"{key}.{name}" if key else name, depth + 1)
                for name, each in value.items()
            }
        if kind in (list, tuple):
            assert isinstance(value, list | tuple)
            return [self.of(each, f"{key}[{n}]", depth + 1) for n, each in enumerate(value)]
        if kind is int and isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            raise _damaged(self.source, key, "a number", "one of at most 64 bits")
        if isinstance(value, str):
            self._check_text(value, key)
        if kind not in (str, int, float, bool, types.NoneType):
            raise _damaged(self.source, key, value, "a plain value")
        return value

    def _check_text(self, text: str, key: str) -> None:
        if len(text) > _LONGEST or "\0" in text:
            raise _damaged(self.source, key, "a text", f"one of up to {_LONGEST:,} characters")
        if names_class(text):
            found = "found a text that is YAML and names a class"
            raise CheckpointError(f"{self.source}: {key}: {found}; {advice()}")


def _check_form(config: Config, source: str) -> None:
    """Refuse a config whose parts are not of the kinds that all its readers rely on."""
    for key, fits, expected in _FORM:
        found = value_at(config, key)
        if not fits(found):
            raise _damaged(source, key, found, expected)
    for part, section in (("model", "objectives"), ("model", "metrics"), ("data", "transforms")):
        for name, given in (config[part].get(section) or {}).items():
            if not isinstance(given, dict | None):
                raise _damaged(source, f"{part}.{section}.{name}", given, "a mapping")


def _is_named(found: object) -> bool:
    return isinstance(found, dict) and isinstance(found.get("name"), str)


def _are_all(fits: Callable[[object], bool], found: object) -> bool:
    return found is None or (isinstance(found, dict) and all(map(fits, found.values())))


def _is_length(found: object) -> bool:
    """Whether it is a number, or the two that one changes from and to."""
    if isinstance(found, dict):
        ends = (found.get("from"), found.get("to"))
        return all(isinstance(end, int | float) and 0 < end < _LARGEST for end in ends)
    return type(found) is int and found > 0


_Fits = Callable[[Any], bool]
_FORM: tuple[tuple[str, _Fits, str], ...] = (
    ("seed_everything", lambda found: type(found) is int, "a whole number"),
    ("model.encoder", _is_named, "a mapping with a name"),
    ("model.head", lambda found: found is None or _is_named(found), "a mapping with a name"),
    ("model.heads", partial(_are_all, _is_named), "mappings with a name, by name"),
    ("data.heads", partial(_are_all, lambda each: isinstance(each, dict)), "mappings by name"),
    ("data.max_seq_length", _is_length, "a number above 0, or from and to"),
    *(
        (key, lambda found: isinstance(found, dict | None), "a mapping")
        for key in (
            *("data.objectives", "model.objectives", "model.metrics", "model.optimizer"),
            *("data.transforms", "checkpoint"),
        )
    ),
    (
        "checkpoint.filename",
        lambda found: found is None or is_file_name(found),
        "a file's name such as step-{step}",
    ),
)


def _damaged(source: str, key: str, found: object, expected: str) -> DamagedCheckpointError:
    # no repr() of a value from elsewhere: it may be endless
    shown = f"{found[:80]!r}" if isinstance(found, str) else f"a {type(found).__name__}"
    shown = shown if found is not None else "nothing"
    return DamagedCheckpointError(
        f"{source}: a damaged bertlab checkpoint: {key}: found {shown}, expected {expected}"
    )
