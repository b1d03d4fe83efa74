"""``stages``: pre-training in several stages, each with a share of one budget and settings.

A stage is a run of its own: :func:`stage_requests` says what ``bertlab fit`` would be asked for it.
The last one may fine-tune: it names a head, data and an end of its own.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bertlab import nearest
from bertlab.api import BertlabError, ConfigError
from bertlab.extend import (
    DEFAULT_OPTIMIZER,
    SEED_SECTION,
    TRAINER_KEYS,
    Config,
    Request,
    Seeds,
    check_users_own,
    is_listed,
    load_yaml,
    package_keys,
    package_of,
    read_request,
    resolve_request,
)
from bertlab_studies.plan.values import fine_tunes
from bertlab_studies.settings import Overrides, as_overrides

STAGES_KEY = "stages"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+=-]*")  # of a folder
_EXAMPLE = "{short: {share: 0.9, data.max_seq_length: 128}, long: {share: 0.1}}"
_OWN = ("name", "share")
_SHARE = re.compile(r"\d{0,20}\.?\d{1,20}([eE]-?\d{1,2})?|\d{1,20}/\d{1,20}")  # 0.9, 1e-05, 1/3
_BUDGET = "the budget is the run's, and a stage has a share of it"
_WHOLE = "it is the whole run's; give it beside stages"
_ALONE = "it does not go with stages"
_TAKEN = {
    "trainer.max_steps": _BUDGET,
    "trainer.max_epochs": _BUDGET,
    "trainer.max_time": _BUDGET,
    "max_tokens": _BUDGET,
    "max_words": _BUDGET,
    "model.init_from": "a stage starts from the one before it",
    "model.from_scratch": "a stage starts from the one before it",
    "data.cache_dir": _WHOLE,
    STAGES_KEY: "a stage has none",
    **dict.fromkeys(("run_dir", "ckpt_path", "config"), _WHOLE),
    **dict.fromkeys(("seed_everything", "seed"), _WHOLE),
    "keep_predictions": _ALONE,
}
# what a stage may set; of the trainer only plain values, none of where it runs
_SECTIONS = ("model", "data", "trainer", "on_nonfinite")
_TRAINER = TRAINER_KEYS - {"accelerator", "strategy", "devices", "num_nodes", "barebones"}
# a fine-tuning has an end of its own
_TAKEN_OF_FINE_TUNING = {key: why for key, why in _TAKEN.items() if why != _BUDGET}
# what a fine-tuning has from the run; of the trainer where and how it computes
_NOT_FINE_TUNED = (
    *("model", "data", "trainer", "checkpoint", "schedules", STAGES_KEY, "max_tokens"),
    *("max_words", "evaluations", "evaluate_every", "checkpoint_words"),
)
_TRAINER_OF_ALL = (
    *("accelerator", "strategy", "devices", "num_nodes", "precision", "logger"),
    *("deterministic", "enable_progress_bar"),
)
# what does not go with stages, as it counts over a whole run, or takes what they need
_LAST = "expected none: each stage continues from last.ckpt of the one before"


@dataclass(frozen=True)
class Stage:
    """A part of pre-training, or the fine-tuning after it.

    Attributes:
        name: of it, and of its run directory.
        share: of the budget; 0 of a fine-tuning, which has an end of its own.
        settings: overrides of the config; of a fine-tuning all of its config.
    """

    name: str
    share: Fraction
    settings: Overrides

    def to_dict(self) -> dict[str, Any]:
        """Return it as a config has it: shares such as 1/3, which is no number there, as a text."""
        if self.share in (0, 1):  # a fine-tuning, or the only pre-training before one
            return {"name": self.name, **self.settings}
        exact = Fraction(str(float(self.share))) == self.share
        share = float(self.share) if exact else str(self.share)
        return {"name": self.name, "share": share, **self.settings}

    @property
    def fine_tunes(self) -> bool:
        """Whether it has a head."""
        return _has_head(self.settings)


def read_stages(given: object) -> tuple[Stage, ...]:
    """Return the stages of a config, in order.

    Args:
        given: each stage's share and settings by its name, or a list of them with ``name``.

    Raises:
        ConfigError: there is one stage or none, a name, share or key is wrong, or shares do not add
            up to 1.
    """
    if isinstance(given, Mapping):
        entries: list[object] = [
            {"name": name, **each} if isinstance(each, Mapping) else {name: each}
            for name, each in given.items()
        ]
    else:
        entries = list(given) if isinstance(given, list) else []
    if len(entries) < 2:
        raise ConfigError(f"{STAGES_KEY}: found {given!r}, expected two or more, as in {_EXAMPLE}")
    last = _read_stage(entries[-1], is_alone=False) if _names_head(entries[-1]) else None
    alone = last is not None and len(entries) == 2
    read = [_read_stage(each, alone) for each in (entries if last is None else entries[:-1])]
    stages = tuple(read if last is None else [*read, last])
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{STAGES_KEY}: found {name!r} twice, expected names that differ")
    for stage in stages[:-1]:
        if stage.fine_tunes:
            raise ConfigError(
                f"{STAGES_KEY}.{stage.name}: found a head before the last stage, expected one in "
                f"the last stage ({names[-1]}) or in none"
            )
    total = float(sum(stage.share for stage in stages))
    if abs(total - 1) > 1e-9:
        shares = " + ".join(str(float(stage.share)) for stage in stages)
        raise ConfigError(
            f"{STAGES_KEY}: found shares {shares} = {total:g}, expected shares of the budget that "
            "add up to 1 (1/3 is one, too)"
        )
    return stages


def _has_head(settings: Mapping[str, Any]) -> bool:
    return any(key.split(".")[:2] in (["model", "head"], ["model", "heads"]) for key in settings)


def _names_head(given: object) -> bool:
    """Whether a stage, not checked yet, has a head."""
    if not isinstance(given, Mapping):
        return False
    settings = {key: value for key, value in given.items() if key not in _OWN}
    return _has_head(as_overrides(settings, STAGES_KEY, {}))


def _read_stage(given: object, is_alone: bool) -> Stage:
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or name is None:
        raise ConfigError(
            f"{STAGES_KEY}: found {given!r}, expected a stage with its name, share and settings: "
            "{name: short, share: 0.9, data.max_seq_length: 128}"
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{STAGES_KEY}: found the name {name!r}, expected letters, digits, and _ . + = - "
            "behind the first"
        )
    settings = {key: value for key, value in given.items() if key not in _OWN}
    added = package_keys()
    is_head = _has_head(as_overrides(settings, f"{STAGES_KEY}.{name}", {}))
    taken = dict(_TAKEN_OF_FINE_TUNING if is_head else _TAKEN)
    taken |= {key: _ALONE for key, said in added.items() if key in said.not_in_stages}
    taken |= {key: _WHOLE for key, said in added.items() if key in said.not_recorded}
    overrides = as_overrides(settings, f"{STAGES_KEY}.{name}", taken)
    sections = [*_SECTIONS, *(key for key, said in added.items() if key not in said.not_recorded)]
    for key in overrides:
        section, _, rest = key.partition(".")
        if (section == "trainer" and rest not in _TRAINER) or section in ("checkpoint", "compile"):
            raise ConfigError(f"{STAGES_KEY}.{name}: {key}: cannot be set here; {_WHOLE}")
        if section not in sections:
            package = None if section in added else package_of("key", section)
            known = f"{nearest(key, sections)}, expected share, or keys of {', '.join(sections)}"
            reason = f"comes with {package}: pip install {package}"
            reason = f"no such key{known}" if package is None else reason
            raise ConfigError(f"{STAGES_KEY}.{name}: {key}: {reason}")
    share = given.get("share")
    if is_head and share is not None:
        raise ConfigError(
            f"{STAGES_KEY}.{name}.share: found {share!r} beside a head, expected none: a "
            "fine-tuning ends by its own trainer.max_epochs or trainer.max_steps"
        )
    if is_head or (is_alone and share is None):
        return Stage(name, Fraction(0 if is_head else 1), overrides)
    return Stage(name, _read_share(share, f"{STAGES_KEY}.{name}.share"), overrides)


def _read_share(given: object, key: str) -> Fraction:
    # 0.9 is nine tenths, and 1/3 a third; Fraction("1e-30000000") would make all of its digits
    text, share = str(given).strip(), Fraction(0)
    if _SHARE.fullmatch(text):
        with contextlib.suppress(ZeroDivisionError):
            share = Fraction(text)
    if isinstance(given, bool) or not 0 < share < 1:
        found = "none" if given is None else repr(given)
        raise ConfigError(f"{key}: found {found}, expected a share of the budget between 0 and 1")
    return share


def check_stages(config: Config) -> None:
    """Raise ConfigError if something else in a resolved config does not go with its stages."""
    if fine_tunes(config):
        raise ConfigError(
            f"{STAGES_KEY}: found beside model.head, expected a pre-training: give the head to "
            "the last stage: {head: single_sentence, data.source: FILE, trainer.max_epochs: 3}"
        )
    checkpoint, trainer = config["checkpoint"], config["trainer"]
    wrong = {
        **{
            key: (config.get(key), f"expected none beside {STAGES_KEY}: {said.not_in_stages[key]}")
            for key, said in package_keys().items()
            if key in said.not_in_stages
        },
        "trainer.max_time": (
            trainer["max_time"],
            f"expected steps, epochs, tokens or words beside "
            f"{STAGES_KEY}: a share of a time would not be the same when it is resumed",
        ),
        "checkpoint.dirpath": (checkpoint["dirpath"], _LAST),
        "checkpoint.save_last": (not checkpoint["save_last"] or None, _LAST),
        "trainer.enable_checkpointing": (trainer["enable_checkpointing"] is False or None, _LAST),
    }
    for key, (found, expected) in wrong.items():
        if found is not None:
            raise ConfigError(f"{key}: found {found}, {expected}")


def stage_requests(
    config: Config, stages: Sequence[Stage], directory: Path | None = None
) -> list[Request]:
    """Return what ``bertlab fit`` is asked for each stage."""
    check_stages(config)
    shared = [stage for stage in stages if not stage.fine_tunes]
    names = [stage.name for stage in shared]
    budgets = share_out(config, names, [stage.share for stage in shared])
    budgets += [{}] * (len(stages) - len(shared))
    requests = []
    for number, (stage, budget) in enumerate(zip(stages, budgets, strict=True)):
        content = _content_of_stage(config, number)
        if stage.fine_tunes:
            content = _content_of_fine_tuning(config)
        if directory is not None:
            content["run_dir"] = str(stage_directory(directory, stages, number))
            if number > 0:
                before = stage_directory(directory, stages, number - 1)
                content["model"]["init_from"] = str(before)
        with naming_stage(stage):
            request = read_request((), content, settings={**stage.settings, **budget})
            name = config["model"]["encoder"]["name"]
            if request.encoder != name:
                raise ConfigError(
                    f"model.encoder: found {request.encoder}, expected {name}: all stages train "
                    "one model"
                )
        requests.append(request)
    return requests


def given_stages(request: Request) -> object:
    """Return ``stages`` as files and arguments give it, not checked yet; None if they do not."""
    given = request.values.get(STAGES_KEY)
    return load_yaml(given) if isinstance(given, str) else given


def check_stored_stages(config: Mapping[str, Any], source: str) -> None:
    """Refuse settings of stages that a config from elsewhere may not bring.

    Raises:
        ResumeError: there is one that is not on the closed list.
    """
    given = config.get(STAGES_KEY)
    listed = dict(enumerate(given)) if isinstance(given, list) else given
    refused: list[str] = []
    for name, stage in listed.items() if isinstance(listed, Mapping) else ():
        # what is no mapping is refused when it is read
        settings = dict(stage) if isinstance(stage, Mapping) else {}
        own = {key: each for key, each in settings.items() if key not in _OWN}
        refused += [
            f"{STAGES_KEY}.{name}.{key}"
            for key, value in as_overrides(own, f"{STAGES_KEY}.{name}", {}).items()
            if value is not None and not is_listed(key, value)
        ]
    check_users_own(refused, Path(source), "fit")


def _content_of_stage(config: Config, number: int) -> Config:
    """Return the config of a stage, before its own settings."""
    content = deepcopy({key: value for key, value in config.items() if key != STAGES_KEY})
    model = content["model"]
    # a resolved config leaves AdamW's name out, and a stage may have another's settings
    model["optimizer"].setdefault("name", DEFAULT_OPTIMIZER)
    if number > 0:
        model |= {"init_from": None, "from_scratch": False}
        content[SEED_SECTION] = seeds_of_stage(config, number)
        if model["optimizer"]["schedule_steps"] is not None and not model["init_optimizer"]:
            raise ConfigError(
                f"model.optimizer.schedule_steps: found beside {STAGES_KEY}, expected "
                "model.init_optimizer: true, with which the schedule continues from stage to "
                "stage; left out, each stage has a schedule of its own"
            )
    elif model["init_from"] is None:
        model["init_optimizer"] = False  # there is none before the first
    return content


def _content_of_fine_tuning(config: Config) -> Config:
    """Return what a fine-tuning stage has from the config of the whole, before its own settings."""
    content = deepcopy({key: each for key, each in config.items() if key not in _NOT_FINE_TUNED})
    trainer = {key: config["trainer"][key] for key in _TRAINER_OF_ALL if key in config["trainer"]}
    content["trainer"] = deepcopy(trainer)
    content["model"] = {"encoder": deepcopy(config["model"]["encoder"])}
    return content


def seeds_of_stage(config: Config, number: int) -> dict[str, int]:
    """Return the seeds that are another than the run's in a stage after the first one.

    It reads the text in another order, with other masks: of a budget below an epoch it would see
    the first stage's text again otherwise, and not the rest.
    """
    seeds = Seeds.of(config)
    own = {
        # NumPy keeps these numbers the same in all versions
        part: int(np.random.SeedSequence((getattr(seeds, part), number)).generate_state(1)[0])
        for part in ("order", "masks")
    }
    return seeds.apart(config["seed_everything"]) | own


def stage_directory(directory: Path, stages: Sequence[Stage], number: int) -> Path:
    """Return the run directory of a stage: ``RUN/stages/NAME``, and RUN of the last one."""
    last = number == len(stages) - 1
    return directory if last else directory / STAGES_KEY / stages[number].name


@contextlib.contextmanager
def naming_stage(stage: Stage) -> Iterator[None]:
    """Put the stage in front of what the block says of an error."""
    try:
        yield
    except BertlabError as error:
        raise type(error)(f"{STAGES_KEY}.{stage.name}: {error}") from error


def stage_configs(config: Config) -> list[Config]:
    """Return the plain config of each stage of a plain config that has stages.

    Raises:
        ConfigError: as ``bertlab fit`` would; names the stage.
    """
    # a study asks for those of all its runs, which are few different ones
    return deepcopy(_stage_configs(json.dumps(config)))


@lru_cache(maxsize=256)
def _stage_configs(text: str) -> list[Config]:
    config = json.loads(text)
    stages = read_stages(config[STAGES_KEY])
    configs = []
    for stage, request in zip(stages, stage_requests(config, stages), strict=True):
        with naming_stage(stage):
            configs.append(resolve_request(request))
    return configs


def last_config(config: Config) -> Config:
    """Return the plain config that a run ends with: of the last stage, where it has stages."""
    return stage_configs(config)[-1] if config.get(STAGES_KEY) else config


_ENDS = ("trainer.max_steps", "trainer.max_epochs", "max_tokens", "max_words")


def share_out(
    config: Mapping[str, Any], names: Sequence[str], shares: Sequence[Fraction]
) -> list[dict[str, Any]]:
    """Return the settings by which each stage of a run ends.

    Steps are rounded so that their sum is the budget: of 10, shares of 1/3 are 3, 4 and 3. Tokens
    and words become steps when the data of a stage is known.
    """
    key, amount = _budget(config)
    if key == "trainer.max_steps":
        ends = [0, *(round(amount * each) for each in accumulate(shares))]
        parts: list[float] = [end - start for start, end in pairwise(ends)]
    elif key == "trainer.max_epochs":
        epochs = [amount * share for share in shares]
        parts = [int(each) if each.denominator == 1 else 0 for each in epochs]
    else:
        parts = [amount * float(share) for share in shares]
    for name, share, part in zip(names, shares, parts, strict=True):
        if not part > 0:
            unit = "step" if key == "trainer.max_steps" else "whole number of epochs"
            raise ConfigError(
                f"stages.{name}.share: {float(share):g} of {key}, which is {amount:,}, is "
                f"{float(amount * share):g}, expected a {unit}; choose another share or {key}"
                + (", or give trainer.max_steps" if key == "trainer.max_epochs" else "")
            )
    return [{key: part} for part in parts]


def _budget(config: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the key that ends the run, and its value."""
    trainer = config["trainer"]
    values = (
        trainer["max_steps"],
        trainer["max_epochs"],
        config["max_tokens"],
        config["max_words"],
    )
    found = {
        key: value for key, value in zip(_ENDS, values, strict=True) if value not in (None, -1)
    }
    if "max_words" in found:
        found.pop("trainer.max_epochs", None)  # no end there but a limit
    if len(found) != 1:
        told = " and ".join(found) or "none"
        raise ConfigError(
            f"stages: found {told} to end the run, expected one of {', '.join(_ENDS)}, of which "
            "each stage has a share"
        )
    ((key, amount),) = found.items()
    if not 0 < amount < math.inf:  # NaN is not either
        raise ConfigError(f"{key}: found {amount}, expected above 0")
    return key, amount
