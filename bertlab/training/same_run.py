"""Whether two runs are the same run: they compute the same, on the same data, by the same code.

A config is compared key by key, but for what says where a run is computed and where its data lies
(:mod:`bertlab.config.recorded`). Data is compared by its content: by the hashes that a manifest
has too, by which studies tell whether their runs have the same. Code may change between two
sessions of a run, which says so: the manifest has that of the first session and, below
``sessions``, of each one after that, as far as it is another; a checkpoint has that of the session
that wrote it.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_directory import MANIFEST_FILE
from bertlab.config.recorded import complete, computed
from bertlab.config.request import Request
from bertlab.config.run_config import AUTO, RunConfig
from bertlab.config.yaml_files import Config, differences
from bertlab.data.module import TaskData
from bertlab.data.sources import is_source
from bertlab.errors import BertlabError, ResumeError
from bertlab.files import read_object
from bertlab.plugins.hooks import GROUP
from bertlab.plugins.index import (
    FIRST_PARTY,
    Kind,
    Plugin,
    entry_package,
    entry_points_of,
    installed,
    recorded_as,
)
from bertlab.plugins.strangers import content_hash
from bertlab.tokenizer.files import load_tokenizer

_DIGITS = 12  # of a hash
_KEYS = {"corpus": "data.corpus", "store": "data.corpus", "tokenizer": "data.tokenizer"}
_NEW_RUN = "start a new run from its weights by --model.init_from"
_DATA = (  # what differs, and what to do
    "its data has changed since (hashes of the content here and in the checkpoint)",
    "Put the data back, give the place where it lies now",
)
KEY = "made_with"  # of a checkpoint
_CODE = ("packages", "plugins", "plugin_contents", "plugin_names")
# of a session in the manifest, if they are not as before
_OF_SESSION = (*_CODE, "command", "python", "platform", "device", "threads", "precision")

Facts = Mapping[str, Any]
Hashes = dict[str, str]  # by what they are of: corpus, store, tokenizer, "rows of train"


def check_same_config(config: RunConfig, stored: Config, hashes: Hashes | None = None) -> None:
    """Raise ResumeError if a config computes something else than a stored one, of any version.

    ``hashes`` are of the stored run's data; of data whose content is not recorded the place counts.
    A run in stages has none here: each stage compares its own.
    """
    trains, trained = _learns(config.plain), _learns(stored)
    if trains != trained and {trains, trained} != {"a head", "heads"}:
        raise ResumeError(
            f"--ckpt_path resumes a run exactly, but the config trains {trains} and the checkpoint "
            f"{trained}; a new run begins with its weights by --model.init_from"
        )
    by_place = hashes is not None and not hashes
    known = complete(stored, config.plain, config.defaults())
    lines = differences(computed(config.plain, by_place), computed(known, by_place))
    refuse_other_config(lines)


def refuse_other_config(lines: list[str]) -> None:
    """Raise ResumeError if there are differences of a config from the checkpoint's."""
    what = "the config differs from the checkpoint's (here, there)"
    _refuse(lines, what, "Go on with the checkpoint's config")


def check_same_data(here: Hashes, there: Hashes, places: Config) -> None:
    """Raise ResumeError if data differs; ``places`` is section ``data`` of the config."""
    lines = []
    for name, found in here.items():
        # the tokens decide, where they are known: another splitter may have split alike
        if name in there and found != there[name] and not (name == "corpus" and "store" in there):
            place = _place(name, places)
            named = ", ".join(map(str, place)) if isinstance(place, list) else str(place)
            hashes = f"{found[:_DIGITS]}… here, {there[name][:_DIGITS]}… there"
            lines.append(f"{_KEYS.get(name, f'data, {name}')}: {named[:200]}: {hashes}")
    gone = [name for name in there if name.startswith("rows of ") and name not in here]
    _refuse(lines + [f"{name}: none here, some there" for name in gone], *_DATA)


def check_same_labels(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Raise ResumeError if classes or their counts differ; by head, of a single one by ``""``."""
    lines = []
    for head in {**here, **there}:
        ours, theirs = here.get(head), there.get(head)
        if ours != theirs:
            of = f" of data.heads.{head}" if head else ""
            lines.append(f"labels of the training data{of}: {ours} here, {theirs} there")
    _refuse(lines, *_DATA)


def _refuse(lines: list[str], what: str, remedy: str) -> None:
    if lines:
        listed = "\n  ".join(lines)
        raise ResumeError(
            f"--ckpt_path resumes a run exactly, but {what}:\n  {listed}\n{remedy}, or {_NEW_RUN}"
        )


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


def hashes_of(facts: Mapping[str, Any]) -> Hashes:
    """Return the hashes of a run's data, from what its manifest says or will say."""
    found = {name: facts.get(name) for name in ("corpus", "store", "tokenizer")}
    splits = facts.get("data")
    for split, each in splits.items() if isinstance(splits, Mapping) else ():
        if isinstance(each, Mapping) and "fingerprint" in each:
            found[f"rows of {split}"] = each["fingerprint"]
    return {name: value for name, value in found.items() if isinstance(value, str)}


def read_manifest(run: Path) -> dict[str, Any]:
    """Return a run's manifest; an empty one if there is none that can be read."""
    try:
        return read_object(run / MANIFEST_FILE)
    except (BertlabError, OSError, ValueError):
        return {}


class Resumption:
    """Compares a run with the checkpoint that it goes on from, as soon as each part is known."""

    def __init__(self, config: RunConfig, checkpoint: Pretrained | None) -> None:
        self.config, self.checkpoint = config, checkpoint
        self.hashes: Hashes = {}
        if checkpoint is not None and checkpoint.path is not None:
            # of a checkpoint from before it kept them, its run's
            self.hashes = checkpoint.data or hashes_of(read_manifest(checkpoint.path.parent.parent))

    def check_config(self) -> None:
        """Compare the configs, before any data is read."""
        if self.checkpoint is None or self.checkpoint.config is None:
            return
        if self.config.values.trainer.accumulate_grad_batches == AUTO:
            began = self.checkpoint.config["trainer"]
            kept = ("accumulate_grad_batches", "val_check_interval")
            self.config.set_trainer({key: began[key] for key in kept})
        check_same_config(self.config, self.checkpoint.config, self.hashes)

    def check_tokenizer(self) -> None:
        """Compare the tokenizer that the config names; the checkpoint has its own."""
        if self.checkpoint is None or self.checkpoint.config is None:
            return
        given, mine = self.config.plain["data"].get("tokenizer"), self.checkpoint.tokenizer
        stored = self.checkpoint.config["data"].get("tokenizer")
        if given is None or mine is None or (given == stored and not Path(given).exists()):
            return  # moved or gone: it is in the checkpoint
        here = {"tokenizer": load_tokenizer(Path(given)).fingerprint}
        check_same_data(here, {"tokenizer": mine.fingerprint}, self.config.plain["data"])

    def check_data(self, data: TaskData) -> None:
        """Compare what was read."""
        if self.checkpoint is not None:
            check_same_data(hashes_of(data.facts()), self.hashes, self.config.plain["data"])


def plugin_facts(request: Request, config: Config) -> dict[str, dict[str, str]]:
    """Return what a manifest says of the plugins of a run."""
    hooks = dict(entry_package(entry) for entry in entry_points_of(GROUP))  # called in every run
    return facts_of(_used(request, config), hooks)


def facts_of(
    plugins: Iterable[Plugin], hooks: Mapping[str, str] = MappingProxyType({})
) -> dict[str, dict[str, str]]:
    """Return what :func:`plugin_facts` does, of plugins and of packages with hooks."""
    used = list(plugins)
    versions = {each.package: each.version for each in used} | dict(hooks)
    others = [package for package in versions if package not in FIRST_PARTY]
    return {
        "plugins": {recorded_as(package): version for package, version in versions.items()},
        "plugin_contents": {package: content_hash(package) for package in others},
        "plugin_names": {
            f"{each.kind} {each.name}": each.package
            for each in used
            if each.package not in FIRST_PARTY
        },
    }


def _used(request: Request, config: Config) -> Iterator[Plugin]:
    """Yield the plugins that a config names, wherever it does."""
    named: dict[Kind, list[str | None]] = {
        "encoder": [request.encoder],
        "objective": [*request.objectives],
        "head": [request.head, *request.heads.values()],
        "metric": [*request.metrics],
        "optimizer": [request.optimizer],  # a class of torch.optim is no plugin
        "schedule": [request.schedule],
        "tokenizer": [request.tokenizer],
    }
    for kind, names in named.items():
        yield from (installed(kind)[name] for name in names if name in installed(kind))
    data = config["data"]
    given = [data.get("source"), *_listed(data.get("corpus"))]
    for location in given:
        if isinstance(location, str) and is_source(location):
            yield installed("source")[location.partition(":")[0]]
    for entry in (config.get("evaluations") or {}).values():
        evaluation = installed("evaluation").get(entry.get("evaluation"))
        if evaluation is not None:
            yield evaluation


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def code_of(facts: Facts) -> dict[str, dict[str, str]]:
    """Return the part of a manifest that a checkpoint keeps."""
    return {key: dict(facts.get(key) or {}) for key in _CODE}


def changes_of_code(now: Facts, before: Facts) -> list[str]:
    """Return a line for each package that is another than before: ``torch 2.12 → 2.13``."""
    lines: list[str] = []
    moved: set[str] = set()
    for key in ("packages", "plugins"):
        here, there = _texts(now, key), _texts(before, key)
        for name in here.keys() & there.keys() - moved:
            if here[name] != there[name]:
                lines.append(f"{name} {there[name]} → {here[name]}")
                moved.add(name)
    here, there = _texts(now, "plugin_contents"), _texts(before, "plugin_contents")
    for name in here.keys() & there.keys() - moved:
        if here[name] != there[name]:
            lines.append(
                f"{name} {_texts(now, 'plugins').get(name)} with other files "
                f"({there[name][:_DIGITS]}… → {here[name][:_DIGITS]}…)"
            )
    return sorted(lines)


def changed_facts(facts: Facts, before: Facts) -> dict[str, Any]:
    """Return what a session of a run has otherwise than the one before, for the manifest."""
    return {key: facts[key] for key in _OF_SESSION if facts.get(key) != before.get(key)}


def sessions_of(record: Facts) -> list[dict[str, Any]]:
    """Return a manifest as it would be of the session that began the run, and of each later one."""
    found, sessions = [dict(record)], record.get("sessions")
    for each in sessions if isinstance(sessions, list) else []:
        found.append({**found[-1], **(each if isinstance(each, dict) else {})})
    return found


def _texts(record: Facts, key: str) -> dict[str, str]:
    """Return texts by name from a record that may come from anywhere; {} for anything else."""
    found = record.get(key)
    return {str(name): str(each) for name, each in found.items()} if isinstance(found, dict) else {}
