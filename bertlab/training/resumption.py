"""Whether a run goes on exactly as it began: the same computation, on the same data.

A config is compared key by key, but for what says where a run is computed and where its data lies
(:mod:`bertlab.config.recorded`). Data is compared by its content: by the hashes that a manifest
has too, by which studies tell whether their runs have the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_directory import MANIFEST_FILE
from bertlab.config.recorded import complete, computed
from bertlab.config.run_config import RunConfig
from bertlab.config.yaml_files import Config, differences
from bertlab.data.module import TaskData
from bertlab.errors import BertlabError, ResumeError
from bertlab.files.reading import read_object
from bertlab.tokenizer.files import load_tokenizer
from bertlab.training.step_memory import adopt_parts

_DIGITS = 12  # of a hash
_KEYS = {"corpus": "data.corpus", "store": "data.corpus", "tokenizer": "data.tokenizer"}
Hashes = dict[str, str]  # by what they are of: corpus, store, tokenizer, "rows of train"


def hashes_of(facts: Mapping[str, Any]) -> Hashes:
    """Return the hashes of a run's data, from what its manifest says or will say."""
    found = {name: facts.get(name) for name in ("corpus", "store", "tokenizer")}
    splits = facts.get("data")
    for split, each in splits.items() if isinstance(splits, Mapping) else ():
        if isinstance(each, Mapping) and "fingerprint" in each:
            found[f"rows of {split}"] = each["fingerprint"]
    return {name: value for name, value in found.items() if isinstance(value, str)}


def recorded_hashes(checkpoint: Pretrained) -> Hashes:
    """Return those of a checkpoint's run; of one from before they were kept, its manifest's."""
    assert checkpoint.path is not None
    return checkpoint.data or manifest_hashes(checkpoint.path.parent.parent)


def manifest_hashes(run: Path) -> Hashes:
    """Return the hashes in a run's manifest; none if it has none that can be read."""
    try:
        return hashes_of(read_object(run / MANIFEST_FILE))
    except (BertlabError, OSError, ValueError):
        return {}


def check_tokenizer(given: str | None, checkpoint: Pretrained) -> None:
    """Refuse a ``data.tokenizer`` that is another than the run's, whose checkpoint has its own."""
    mine = checkpoint.tokenizer
    if given is None or mine is None or checkpoint.config is None:
        return
    if given == checkpoint.config["data"].get("tokenizer") and not Path(given).exists():
        return  # moved or gone: it is in the checkpoint
    found = load_tokenizer(Path(given)).fingerprint
    if found != mine.fingerprint:
        raise _changed([_line("tokenizer", given, found, mine.fingerprint)])


def check_same_data(here: Hashes, there: Hashes, data: Config) -> None:
    """Refuse to resume a run on data that changed; a file may have moved."""
    lines = []
    for name, found in here.items():
        # the tokens decide, where they are known: another splitter may have split alike
        if name in there and found != there[name] and not (name == "corpus" and "store" in there):
            lines.append(_line(name, _place(name, data), found, there[name]))
    lines += [f"{name}: none here, some there" for name in there if _is_gone(name, here)]
    if lines:
        raise _changed(lines)


def _is_gone(name: str, here: Hashes) -> bool:
    return name.startswith("rows of ") and name not in here


def _place(name: str, data: Config) -> object:
    """Return what the config says of where data lies: a corpus, a file or a split of a source."""
    split = name.removeprefix("rows of ")
    if split == name:
        return (data.get("objectives") or data).get("corpus")
    head, _, of_head = split.partition("/")  # rows of mrpc/train
    if of_head and isinstance(own := (data.get("heads") or {}).get(head), dict):
        return _place(f"rows of {of_head}", own)
    found = data.get("validation") if split == "validation" or split != "train" else None
    place = found.get(split) if isinstance(found, Mapping) else data.get(split, found)
    return place or data.get("source") or data.get("train")


def _line(name: str, place: object, here: str, there: str) -> str:
    named = ", ".join(map(str, place)) if isinstance(place, list) else str(place)
    key = _KEYS.get(name, f"data, {name}")
    return f"{key}: {named[:200]}: {here[:_DIGITS]}… here, {there[:_DIGITS]}… there"


def _changed(lines: list[str]) -> ResumeError:
    return ResumeError(
        "--ckpt_path resumes a run exactly, but its data has changed since (hashes of the content "
        "here and in the checkpoint):\n  "
        + "\n  ".join(lines)
        + "\nPut the data back, give the place where it lies now, or start a new run from the "
        "weights by --model.init_from"
    )


def check_same_computation(config: RunConfig, stored: Config, by_place: bool = False) -> None:
    """Refuse to resume a run with a config that computes something else."""
    mine, began = _learns(config.plain), _learns(stored)
    if mine != began and {mine, began} != {"a head", "heads"}:
        raise ResumeError(
            f"--ckpt_path resumes a run exactly, but the config trains {mine} and the checkpoint "
            f"{began}; a new run begins with its weights by --model.init_from"
        )
    theirs = complete(stored, config.plain, config.defaults())
    changed = differences(computed(config.plain, by_place), computed(theirs, by_place))
    if changed:
        raise ResumeError(
            "--ckpt_path resumes a run exactly, but the config differs from the checkpoint's "
            "(here, there):\n  "
            + "\n  ".join(changed)
            + "\nGo on with the checkpoint's config, or start a new run from its weights by "
            "--model.init_from"
        )


def _learns(config: Config) -> str:
    """Return what kind of task a config trains."""
    model = config["model"]
    return "heads" if model.get("heads") else "a head" if model.get("head") else "objectives"


@dataclass(frozen=True)
class Resumption:
    """What is looked at before a run goes on; nothing, where none does.

    Attributes:
        config: of the command.
        checkpoint: to go on from; None for a new run, and for commands that train nothing.
    """

    config: RunConfig
    checkpoint: Pretrained | None

    def check_config(self) -> None:
        """Compare the configs, before any data is read."""
        if self.checkpoint is not None and self.checkpoint.config is not None:
            adopt_parts(self.config, self.checkpoint.config["trainer"])
            unknown_place = not recorded_hashes(self.checkpoint)
            check_same_computation(self.config, self.checkpoint.config, unknown_place)

    def check_tokenizer(self) -> None:
        """Compare the tokenizer that the config names."""
        if self.checkpoint is not None:
            check_tokenizer(self.config.plain["data"].get("tokenizer"), self.checkpoint)

    def check_data(self, data: TaskData) -> None:
        """Compare what was read."""
        if self.checkpoint is not None:
            here, there = hashes_of(data.facts()), recorded_hashes(self.checkpoint)
            check_same_data(here, there, self.config.plain["data"])


def checkpoint_data(facts: Mapping[str, Any], tokenizer: Tokenizer) -> Hashes:
    """Return the hashes that a checkpoint keeps."""
    return hashes_of({**facts, "tokenizer": tokenizer.fingerprint})
