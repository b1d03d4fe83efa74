"""What the config that a checkpoint stores may bring: names of plugins, and plain values.

A checkpoint may come from anywhere, and a config may name any class of any installed package, with
any arguments (``class_path``). So a stored config is not taken as a user's file is. It names
plugins, which are found in the index, and has plain values. Of the trainer it has only the keys of
``TRAINER_KEYS``. It cannot say where something is written. The rest is the user's to give, by
``--config`` or arguments.
"""

import re
import types
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, is_typeddict

from jsonargparse import ArgumentParser

from bertlab.config.yaml_files import Config
from bertlab.errors import CheckpointError, ConfigError, DamagedCheckpointError

# of Lightning's Trainer; each takes plain values, or words such as gpu, ddp, bf16-mixed
TRAINER_KEYS = frozenset(
    {
        *("accelerator", "strategy", "devices", "num_nodes", "precision", "fast_dev_run"),
        *("max_epochs", "min_epochs", "max_steps", "min_steps", "max_time"),
        *("limit_train_batches", "limit_val_batches", "limit_test_batches"),
        *("limit_predict_batches", "overfit_batches", "val_check_interval"),
        *("check_val_every_n_epoch", "num_sanity_val_steps", "log_every_n_steps"),
        *("enable_checkpointing", "enable_progress_bar", "enable_model_summary"),
        *("accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm"),
        *("deterministic", "benchmark", "inference_mode", "use_distributed_sampler"),
        *("detect_anomaly", "barebones", "sync_batchnorm"),
        *("reload_dataloaders_every_n_epochs", "enable_autolog_hparams"),
    }
)
# also plain, but strings of theirs name classes or places: only what is no string is taken
_TRAINER_SWITCHES = frozenset({"logger", "callbacks", "profiler", "plugins"})
_WRITTEN_TO = {"trainer": "default_root_dir", "checkpoint": "dirpath", "data": "cache_dir"}
_SECTIONS = ("model", "data", "trainer")  # that every config has
_CLASS_KEYS = frozenset({"class_path", "init_args"})  # how jsonargparse names a class
# no dot and no capital, so never a class: gpu, ddp_find_unused_parameters_true, 16-mixed, 0,1
_WORD = re.compile(r"-?[a-z0-9][a-z0-9_,: +-]{0,80}")
# step-{step}, not ../x, and no {step:999999999} or {step.__class__}
_FILE_NAME = re.compile(r"(?!\.)(?:[\w.=+-]|\{[A-Za-z_][\w/]*(?::\.?\d{1,2}[df]?)?\})+")
_DEEPEST, _MOST_VALUES, _LONGEST = 24, 100_000, 1_000_000
_LARGEST = 2**63


def read_stored_config(found: object, source: str) -> tuple[Config, list[str]]:
    """Return what a checkpoint's config may bring, as a copy, and the keys that it may not.

    Args:
        found: what lies in the checkpoint.
        source: the file, for messages.

    Raises:
        CheckpointError: if it names a class where only plugins are named.
        DamagedCheckpointError: if it is no config, or its values are not plain.
    """
    if not isinstance(found, dict):
        raise _damaged(source, "its config", found, "a mapping")
    left_out: list[str] = []
    kept: Config = {}
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


def check_file_name(found: object) -> None:
    """Refuse ``checkpoint.filename`` if it is no form that a name can be made of.

    Raises:
        ConfigError: it leads elsewhere, is too long, or has a field such as ``{0}``.
    """
    if found is not None and not is_file_name(found):
        raise ConfigError(
            f"checkpoint.filename: found {str(found)[:80]!r}, expected a file's name such as "
            "step-{step}"
        )


def is_file_name(found: object) -> bool:
    """Whether checkpoints can be named so: ``step-{step}``."""
    return isinstance(found, str) and len(found) < 150 and bool(_FILE_NAME.fullmatch(found))


def check_no_classes(parser: ArgumentParser, content: Config, source: str) -> None:
    """Refuse a stored text where a parser would look for a class or function of that name.

    Args:
        parser: of the keys, with those of the named plugins.
        content: a config from elsewhere.
        source: the file, for messages.

    Raises:
        CheckpointError: if there is one.
    """
    for action in parser._actions:
        hint = getattr(action, "_typehint", None) or action.type
        if hint is None or _is_plain_type(hint):
            continue
        for text in _texts(_value_at(content, action.dest)):
            if not _WORD.fullmatch(text):
                raise CheckpointError(
                    f"{source}: {action.dest}: found {text[:80]!r}, which names a class or a "
                    "function; a checkpoint may not bring that, give it yourself by --config"
                )


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
        # max_time may be {minutes: 5}
        named = isinstance(value, dict) and not _CLASS_KEYS.isdisjoint(value)
        return not named and (not isinstance(value, str) or _WORD.fullmatch(value) is not None)
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
                if name in _CLASS_KEYS:
                    raise CheckpointError(
                        f"{self.source}: {key}: found {name}, which names a class; a checkpoint "
                        "may name plugins only, give classes yourself by --config"
                    )
            return {
                name: self.of(each, f"{key}.{name}" if key else name, depth + 1)
                for name, each in value.items()
            }
        if kind in (list, tuple):
            assert isinstance(value, list | tuple)
            return [self.of(each, f"{key}[{n}]", depth + 1) for n, each in enumerate(value)]
        if kind is int and isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            raise _damaged(self.source, key, "a number", "one of at most 64 bits")
        if isinstance(value, str) and (len(value) > _LONGEST or "\0" in value):
            raise _damaged(self.source, key, "a text", f"one of up to {_LONGEST:,} characters")
        if kind not in (str, int, float, bool, types.NoneType):
            raise _damaged(self.source, key, value, "a plain value")
        return value


def _check_form(config: Config, source: str) -> None:
    """Refuse a config whose parts are not of the kinds that all its readers rely on."""
    model = config["model"]
    for key, fits, expected in _FORM:
        found = _value_at(config, key)
        if not fits(found):
            raise _damaged(source, key, found, expected)
    for section in ("objectives", "metrics"):
        for name, given in (model.get(section) or {}).items():
            if not isinstance(given, dict | None):
                raise _damaged(source, f"model.{section}.{name}", given, "a mapping")


def _is_named(found: object) -> bool:
    return isinstance(found, dict) and isinstance(found.get("name"), str)


def _is_mapping_or_none(found: object) -> bool:
    return isinstance(found, dict | None)


def _is_length(found: object) -> bool:
    """Whether it is a number, or the two that one changes from and to."""
    if isinstance(found, dict):
        ends = (found.get("from"), found.get("to"))
        return all(isinstance(end, int | float) and 0 < end < _LARGEST for end in ends)
    return type(found) is int and found > 0


_FORM: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("seed_everything", lambda found: type(found) is int, "a whole number"),
    ("model.encoder", _is_named, "a mapping with a name"),
    ("model.head", lambda found: found is None or _is_named(found), "a mapping with a name"),
    ("model.objectives", _is_mapping_or_none, "a mapping"),
    ("model.metrics", _is_mapping_or_none, "a mapping"),
    ("model.optimizer", _is_mapping_or_none, "a mapping"),
    ("data.max_seq_length", _is_length, "a number above 0, or from and to"),
    ("checkpoint", _is_mapping_or_none, "a mapping"),
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


def _value_at(content: object, key: str) -> object:
    # {"model": {"head": {"name": "span"}}}, model.head.name -> span
    for part in key.split("."):
        if not isinstance(content, Mapping):
            return None
        content = content.get(part)
    return content


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in plain data; keys are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _is_plain_type(hint: Any) -> bool:  # noqa: ANN401  a type, or a form of one
    """Whether a text given for a type is taken as a text, and never imported."""
    if get_origin(hint) is Literal or hint is Any or hint in (None, ...) or is_typeddict(hint):
        return True
    origin = get_origin(hint)
    if origin is not None:
        if isinstance(origin, type) and issubclass(origin, type):  # type[Encoder]
            return False
        container = origin in (types.UnionType,) or not _is_called(origin)
        return container and all(_is_plain_type(each) for each in get_args(hint))
    return isinstance(hint, type) and issubclass(
        hint, str | int | float | bool | types.NoneType | list | dict | tuple | set | Enum | Path
    )


def _is_called(origin: object) -> bool:
    return getattr(origin, "__name__", "") == "Callable"
