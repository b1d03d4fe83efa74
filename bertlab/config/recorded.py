"""Configs that runs recorded, compared with a config of today.

Some keys decide what a run computes, and others say only where and how. A resumed run is compared
by the first; the second are the user's to change. Where data lies is no matter either: its content
is compared (:mod:`bertlab.training.same_run`).

A checkpoint says which version its config has (``CONFIG_VERSION``) and which bertlab wrote it. A
key that came later is taken with its default, so a default has to compute what was computed before
there was the key. Who renames a key or changes what one means raises the version.
"""

from collections.abc import Collection, Mapping
from typing import Any

from bertlab import __version__
from bertlab.config.request import SEED_SECTION, Seeds
from bertlab.config.yaml_files import Config
from bertlab.errors import CheckpointError, DamagedCheckpointError, warn
from bertlab.plugins.hooks import package_keys
from bertlab.plugins.index import where_to_get

CONFIG_VERSION = 2  # 1: of checkpoints that do not say


def check_version(found: object, writer: object, source: str) -> None:
    """Refuse a stored config of a later version, and a version that is none."""
    if found is None:  # of checkpoints that do not say
        return
    if type(found) is not int or found < 1:
        raise DamagedCheckpointError(
            f"{source}: a damaged bertlab checkpoint: the version of its config is "
            f"{str(found)[:80]!r}, expected a whole number"
        )
    if found > CONFIG_VERSION:
        told = f"{source}: its config has version {found}, and this bertlab, {__version__}"
        raise CheckpointError(f"{told}, reads up to {CONFIG_VERSION}; {install(writer)}")


def install(writer: object) -> str:
    """Return what to do about a checkpoint with keys that are not known here."""
    if writer == __version__:
        return "this bertlab wrote it, so install the plugins that it had"
    named = f"bertlab {writer[:40]}" if isinstance(writer, str) else "the bertlab that wrote it"
    return f"install {named} or a later one"


def complete(stored: Config, config: Config, defaults: Config) -> Config:
    """Return a stored config with the default of each key that ``config`` has and it lacks."""
    found = dict(stored)
    for key, value in config.items():
        default = defaults.get(key)
        if key not in found:
            if key in defaults:
                found[key] = default
        elif isinstance(found[key], dict) and isinstance(value, dict):
            below = default if isinstance(default, dict) else {}
            found[key] = complete(found[key], value, below)
    return found


def refuse_unknown(found: Mapping[str, Any], source: str, command: str) -> None:
    """Refuse values by keys that no argument has, if they decide something; else warn."""
    fits = command == "fit"
    # what is null asks for nothing
    unknown = {key: value for key, value in found.items() if value is not None}
    wanted = [key for key in unknown if decides(key) and (fits or key.startswith("model."))]
    if wanted:
        given = [f"{key}: {str(unknown[key])[:80]}{where_to_get('decides', key)}" for key in wanted]
        raise CheckpointError(_unknown_words(source, given))
    if unknown and fits:
        told = f"{source}: left out of its config what this bertlab, {__version__}, does not know"
        warn(f"{told}: {', '.join(unknown)}")


def drop_empty_arguments(
    arguments: Config, known: Collection[str], key: str, source: str, writer: str | None
) -> None:
    """Take out of a plugin's stored arguments those of a later bertlab that are null."""
    later = {name: value for name, value in arguments.items() if name not in known}
    given = [
        f"{key}.{name}: {str(value)[:80]}" for name, value in later.items() if value is not None
    ]
    if given:
        raise CheckpointError(_unknown_words(source, given, writer))
    for name in later:
        del arguments[name]


def _unknown_words(source: str, given: list[str], writer: str | None = None) -> str:
    return (
        f"{source}: its config has keys that this bertlab, {__version__}, does not know, and that "
        f"decide what is computed: {', '.join(given[:10])}; {install(writer)}"
    )


_WHOLE = ("max_tokens", "max_words")
# what may differ between a run and its resumption: where it runs, not what it computes
_FREE = {
    "data": {
        *("num_workers", "prepare_workers", "cache_dir"),
        *("text", "text_pair", "input"),  # what is predicted
    },
    "trainer": {
        *("accelerator", "strategy", "devices", "num_nodes", "plugins", "barebones"),
        *("logger", "callbacks", "profiler", "log_every_n_steps", "default_root_dir"),
        *("enable_progress_bar", "enable_model_summary", "enable_checkpointing"),
        *("max_time", "fast_dev_run"),
    },
}
# keys of data that name places: their content is compared instead; nothing is trained on ``test``
_PLACES = {"corpus", "tokenizer", "source", "train", "validation", "test"}


def computed(config: Config, by_place: bool) -> Config:
    """Return the part of a config that decides what a run computes."""
    kept: Config = {
        "seed_everything": config["seed_everything"],
        SEED_SECTION: Seeds.of(config).apart(config["seed_everything"]),
        "model": {key: value for key, value in config["model"].items() if key != "init_from"},
    }
    kept |= {key: config.get(key) for key in _WHOLE}
    for key, said in package_keys().items():
        if key in said.decides:  # in the form of today, whatever was recorded
            kept[key] = (said.as_recorded or dict)(dict(config)).get(key)
    for section, free in _FREE.items():
        kept[section] = {key: value for key, value in config[section].items() if key not in free}
    if not by_place:
        kept["data"] = without_places(kept["data"], "")
        if heads := kept["data"].get("heads"):
            kept["data"]["heads"] = {name: without_places(each, "") for name, each in heads.items()}
        if text := kept["data"].get("objectives"):
            own = without_places(text, "").items()
            kept["data"]["objectives"] = {
                key: each for key, each in own if key not in _FREE["data"]
            }
    return kept


def without_places(settings: Config, prefix: str) -> Config:
    """Return settings without the keys that say where data lies; sets of rows keep their names."""
    places = {f"{prefix}{name}" for name in _PLACES}
    kept = {key: value for key, value in settings.items() if key not in places}
    sets = settings.get(f"{prefix}validation")
    # the first of several sets chooses the best checkpoint
    return kept | ({f"{prefix}validation": list(sets)} if isinstance(sets, Mapping) else {})


def decides(key: str) -> bool:
    """Whether a key of a config decides what a run computes, by the section that it stands in."""
    section, _, name = key.partition(".")
    if section in _FREE:
        return name.partition(".")[0] not in _FREE[section]
    always = ("seed_everything", SEED_SECTION, "model", *_WHOLE)
    return section in always or bool(where_to_get("decides", section))  # of a package
