"""Whether a run that goes on is the same run: it computes the same, on the same data.

A config is compared key by key, but for what says where a run is computed and where its data lies
(:mod:`bertlab.config.recorded`). Data is compared by its content: by the hashes that a manifest
has too, by which studies tell whether their runs have the same. What is said of other code, and of
other labels, is in :mod:`bertlab.training.record`.
"""

from collections.abc import Mapping
from pathlib import Path

from bertlab.checkpoints.pretrained import Pretrained
from bertlab.config.recorded import complete, computed
from bertlab.config.run_config import AUTO, RunConfig
from bertlab.config.yaml_files import Config, differences
from bertlab.data.module import TaskData
from bertlab.errors import ResumeError
from bertlab.tokenizer.files import load_tokenizer
from bertlab.training.record import OTHER_DATA, Hashes, hashes_of, read_manifest, refuse_other

_DIGITS = 12  # of a hash
_KEYS = {"corpus": "data.corpus", "store": "data.corpus", "tokenizer": "data.tokenizer"}


def check_same_config(config: RunConfig, stored: Config, hashes: Hashes | None = None) -> None:
    """Raise ResumeError if a config computes something else than a stored one, of any version.

    ``hashes`` are of the stored run's data; of data whose content is not recorded the place counts.
    A run in stages has none here: each stage compares its own.
    """
    trains, trained = _learns(config.plain), _learns(stored)
    if trains != trained and {trains, trained} != {"a head", "heads"}:
        raise ResumeError(
            f"--ckpt_path resumes a run exactly, but the config trains {trains} and the checkpoint "
            f"{trained}; start a new run from its weights by --model.init_from"
        )
    by_place = hashes is not None and not hashes
    known = complete(stored, config.plain, config.defaults())
    lines = differences(computed(config.plain, by_place), computed(known, by_place))
    refuse_other_config(lines)


def refuse_other_config(lines: list[str]) -> None:
    """Raise ResumeError if there are differences of a config from the checkpoint's."""
    what = "the config differs from the checkpoint's (here, there)"
    refuse_other(lines, what, "Continue with the checkpoint's config")


def check_same_data(here: Hashes, there: Hashes, places: Config) -> None:
    """Raise ResumeError if data differs; ``places`` is section ``data`` of the config."""
    lines = []
    others = [name for name, found in here.items() if there.get(name, found) != found]
    files = [name.removeprefix("store/") for name in others if name.startswith("store/")]
    # the digest of a store behind a URL is what its store.json says
    claims = "store/digest" in here and "store.json" in files
    for name, found in here.items():
        differs = name in others or (name == "store" and claims)
        # the tokens decide, where they are known: another splitter may have split alike
        if differs and not (name.startswith("store/") or (name == "corpus" and "store" in there)):
            place = _place(name, places)
            named = ", ".join(map(str, place)) if isinstance(place, list) else str(place)
            hashes = f"{found[:_DIGITS]}… here, {there.get(name, '')[:_DIGITS]}… there"
            which = f" ({', '.join(files)})" if name == "store" and files else ""
            lines.append(f"{_KEYS.get(name, f'data, {name}')}: {named[:200]}: {hashes}{which}")
    gone = [name for name in there if name.startswith("rows of ") and name not in here]
    refuse_other(lines + [f"{name}: none here, some there" for name in gone], *OTHER_DATA)


def _learns(config: Config) -> str:
    """Return what kind of task a config trains."""
    model = config["model"]
    return "heads" if model.get("heads") else "a head" if model.get("head") else "objectives"


def _place(name: str, data: Config) -> object:
    """Return what the config says of where data lies: a corpus, a file or a split of a source."""
    split = name.removeprefix("rows of ")
    if name == "tokenizer":
        return data.get("tokenizer")
    if split == name:
        return (data.get("objectives") or data).get("corpus")
    head, _, of_head = split.partition("/")  # rows of mrpc/train
    if of_head and isinstance(own := (data.get("heads") or {}).get(head), dict):
        return _place(f"rows of {of_head}", own)
    found = data.get("validation") if split == "validation" or split != "train" else None
    place = found.get(split) if isinstance(found, Mapping) else data.get(split, found)
    return place or data.get("source") or data.get("train")


class Resumption:
    """Compares a run with the checkpoint that it goes on from, as soon as each part is known."""

    def __init__(self, config: RunConfig, checkpoint: Pretrained) -> None:
        self.config, self.checkpoint = config, checkpoint
        self.hashes: Hashes = {}
        if checkpoint.path is not None:
            # of a checkpoint from before it kept them, its run's
            self.hashes = checkpoint.data or hashes_of(read_manifest(checkpoint.path.parent.parent))

    def check_config(self) -> None:
        """Compare the configs, before any data is read."""
        if self.checkpoint.config is None:
            return
        if self.config.values.trainer.accumulate_grad_batches == AUTO:
            began = self.checkpoint.config["trainer"]
            kept = ("accumulate_grad_batches", "val_check_interval")
            self.config.set_trainer({key: began[key] for key in kept})
        check_same_config(self.config, self.checkpoint.config, self.hashes)

    def check_tokenizer(self) -> None:
        """Compare the tokenizer that the config names; the checkpoint has its own."""
        if self.checkpoint.config is None:
            return
        given, mine = self.config.plain["data"].get("tokenizer"), self.checkpoint.tokenizer
        stored = self.checkpoint.config["data"].get("tokenizer")
        if given is None or mine is None or (given == stored and not Path(given).exists()):
            return  # moved or gone: it is in the checkpoint
        here = {"tokenizer": load_tokenizer(Path(given)).fingerprint}
        check_same_data(here, {"tokenizer": mine.fingerprint}, self.config.plain["data"])

    def check_data(self, data: TaskData) -> None:
        """Compare what was read."""
        check_same_data(hashes_of(data.facts()), self.hashes, self.config.plain["data"])
