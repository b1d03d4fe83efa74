"""Heads of a config: one, ``model.head``, or several by name, ``model.heads``."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bertlab.config.yaml_files import Config
from bertlab.errors import ConfigError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# of what is logged beside the figures of heads: val/loss, val/heads/mean, train/objectives
_TAKEN = ("loss", "heads", "objectives", "auto")
OBJECTIVES_SHARE = 0.5  # of all steps are of objectives beside heads, if data.mixing does not say


def check_head_name(name: object, key: str) -> None:
    """Raise ConfigError if one of several heads cannot be called so; names ``key``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
        raise ConfigError(
            f"{key}: found the name {name!r}, expected letters, digits and _, and none of "
            f"{', '.join(_TAKEN)}"
        )


def check_one_kind(head: str | None, heads: Iterable[str], objectives: Iterable[str]) -> None:
    """Raise ConfigError if a run has a single head, and heads by name or objectives as well."""
    for key, names in (("heads", [*heads]), ("objectives", [*objectives])):
        if head is not None and names:
            beside = "" if key == "heads" else "; beside objectives a head is model.heads.NAME"
            raise ConfigError(
                f"model.head and model.{key}: found {head} and {', '.join(names)}, expected one of "
                f"the two keys{beside}"
            )


def one_head_config(config: Config, name: str) -> Config:
    """Return the config of a run with several heads as if it had this one alone."""
    model, data = dict(config["model"]), dict(config["data"])
    head = model.pop("heads")[name]
    own = data.pop("heads")[name]
    model.pop("objectives", None)
    for key in ("mixing", "objectives"):
        data.pop(key, None)
    return {**config, "model": {**model, "head": head}, "data": {**data, **own}}


def fine_tunes(config: Config) -> bool:
    """Whether a resolved config has a head, or several."""
    return bool(config["model"].get("head") or config["model"].get("heads"))


def heads_by_name(section: Mapping[str, Any]) -> dict[str, Config]:
    """Return the heads of a resolved ``model`` section, a single one by its plugin's name."""
    heads: dict[str, Config] = dict(section.get("heads") or {})
    single = section.get("head")
    return {single["name"]: single} if single else heads
