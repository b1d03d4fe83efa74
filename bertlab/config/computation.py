"""Which keys of a config decide what a run computes, and which say only where and how.

A resumed run is compared by the first; the second are the user's to change. Where data lies is no
matter either: its content is compared (:mod:`bertlab.training.same_run`).
"""

from collections.abc import Mapping

from bertlab.config.seeds import SEED_SECTION, Seeds
from bertlab.config.yaml_files import Config

_STAGES = "stages"
_WHOLE = ("max_tokens", "max_words", _STAGES)
# what may differ between a run and its resumption: where it runs, not what it computes
_FREE = {
    "data": {"num_workers", "prepare_workers", "cache_dir"},
    "trainer": {
        "accelerator",
        "strategy",
        "devices",
        "num_nodes",
        "logger",
        "callbacks",
        "enable_progress_bar",
        "enable_model_summary",
        "enable_checkpointing",
        "log_every_n_steps",
        "max_time",
        "profiler",
        "plugins",
        "default_root_dir",
        "barebones",
        "fast_dev_run",
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
    # older checkpoints lack stages
    kept |= {key: config.get(key) for key in _WHOLE}
    for section, free in _FREE.items():
        kept[section] = {key: value for key, value in config[section].items() if key not in free}
    if not by_place:
        kept["data"] = _without_places(kept["data"], "")
        if heads := kept["data"].get("heads"):
            own = {name: _without_places(each, "") for name, each in heads.items()}
            kept["data"]["heads"] = own
        if text := kept["data"].get("objectives"):
            own = _without_places(text, "")
            kept["data"]["objectives"] = {
                key: value for key, value in own.items() if key not in _FREE["data"]
            }
        if isinstance(kept[_STAGES], list):
            kept[_STAGES] = [_without_places(stage, "data.") for stage in kept[_STAGES]]
    return kept


def _without_places(settings: Config, prefix: str) -> Config:
    """Return settings without the keys that say where data lies; sets of rows keep their names."""
    places = {f"{prefix}{name}" for name in _PLACES}
    kept = {key: value for key, value in settings.items() if key not in places}
    sets = settings.get(f"{prefix}validation")
    # the first of several sets chooses the best checkpoint
    return kept | ({f"{prefix}validation": list(sets)} if isinstance(sets, Mapping) else {})


def decides(key: str) -> bool:
    """Whether a key of a config decides what a run computes, by the section that it stands in."""
    section, _, name = key.partition(".")
    return section in ("seed_everything", SEED_SECTION, "model", *_WHOLE) or (
        section in _FREE and name.partition(".")[0] not in _FREE[section]
    )
