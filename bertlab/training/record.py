"""The run's record: what is needed to repeat it, in its directory and in every checkpoint.

Code may change between two sessions of a run, which says so: the manifest has that of the first
session and, below ``sessions``, of each one after that, as far as it is another; a checkpoint has
that of the session that wrote it.
"""

import contextlib
import errno
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import yaml
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from bertlab import __version__
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_checkpoint import RUN_KEY
from bertlab.checkpoints.run_directory import (
    CONFIG_FILE,
    MANIFEST_FILE,
    RESULTS_FILE,
    add_session,
    claim,
    entries,
    give_back,
    session,
)
from bertlab.checkpoints.training_state import check_optimizer_state, refusing_other_state
from bertlab.config.merge import PLUGIN_SECTIONS
from bertlab.config.recorded import CONFIG_VERSION
from bertlab.config.request import Request
from bertlab.config.yaml_files import Config
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.module import TaskData
from bertlab.data.sources import source_of
from bertlab.errors import (
    BertlabError,
    OutputError,
    ResumeError,
    add_to_json,
    causes,
    warn,
    without_secrets,
)
from bertlab.files import make_folder, read_object, replacing, write_json, write_text
from bertlab.model.module import BertModule
from bertlab.model.optimizer import parameter_names
from bertlab.plugins.hooks import Table, announce
from bertlab.plugins.index import (
    FIRST_PARTY,
    HOOKS,
    RECORDED_AS,
    Kind,
    Plugin,
    entry_package,
    entry_points_of,
    installed,
)
from bertlab.plugins.strangers import content_hash
from bertlab.training.best_checkpoint import check_chosen_files

_DIGITS = 12  # of a hash
_NEW_RUN = "start a new run from its weights by --model.init_from"
OTHER_DATA = (  # what differs, and what to do
    "its data has changed since (hashes of the content here and in the checkpoint)",
    "Put the data back, give the place where it lies now",
)
KEY = "made_with"  # of a checkpoint
_CODE = ("packages", "plugins", "plugin_contents", "plugin_names")
# of a session in the manifest, if they are not as before
_OF_SESSION = (
    *(*_CODE, "hooks_left_out", "command"),
    *("python", "platform", "device", "threads", "precision"),
)

Facts = Mapping[str, Any]
Hashes = dict[str, str]  # by what they are of: corpus, store, tokenizer, "rows of train"


class RunRecord(Callback):
    """Writes ``config.yaml``, ``manifest.json`` and the tokenizer; refuses a changed resumption.

    Args:
        directory: of the run.
        config: the resolved config.
        goes_on: the run goes on in its own directory, which has a record.
        checkpoint: that it goes on from; None for a new run.
    """

    def __init__(
        self,
        directory: Path,
        config: dict[str, Any],
        goes_on: bool,
        checkpoint: Pretrained | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.goes_on = goes_on
        self.first_step = 0 if checkpoint is None else checkpoint.global_step
        self.saved_step = -1  # optimiser step of the last checkpoint
        self.facts: dict[str, Any] = {}
        self.tokenizer: Tokenizer | None = None
        self.token_counts: Tensor | None = None
        self.labels: dict[str, Any] | None = None
        self.head_labels: dict[str, dict[str, Any]] = {}
        self.data: Hashes = {}
        self.before: dict[str, Any] = {}  # what the manifest says of the session before
        self._there = entries(directory)  # before the run
        self._is_claimed = False  # and training has not begun

    def describe(self, facts: dict[str, Any], tokenizer: Tokenizer, data: TaskData) -> None:
        """Set what is known only once the data has been read: the manifest's content, and labels.

        Called before training starts.
        """
        self.facts, self.tokenizer = facts, tokenizer
        add_to_json(run=self.directory, manifest=facts)
        if data.token_counts is not None:
            self.token_counts = torch.from_numpy(data.token_counts)
        self.labels = None if data.labels is None else data.labels.to_dict()
        self.head_labels = {name: each.to_dict() for name, each in data.head_labels.items()}
        self.data = hashes_of({**facts, "tokenizer": tokenizer.fingerprint})

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the record when training starts, on the first device only.

        Raises:
            ResumeError: another process goes on from another step.
        """
        if stage != "fit":
            return
        self._check_first_step(trainer)
        if not trainer.is_global_zero:
            return
        assert self.tokenizer is not None, "describe() comes first"
        here = session(self.first_step, trainer.world_size, self.facts)
        if not self.goes_on:
            # the first write: of two runs that chose this directory, one ends here, before any log
            claim(self.directory, {**self.facts, "sessions": [here]})
            self._is_claimed = True
        else:
            record = read_manifest(self.directory)
            facts, before = self.facts, sessions_of(record)[-1]
            self.before = before
            changed = {key: facts[key] for key in _OF_SESSION if facts.get(key) != before.get(key)}
            add_session(self.directory, record, {**here, **changed})
        if self.goes_on and (self.directory / CONFIG_FILE).is_file():
            return  # it keeps the record of its start
        text = yaml.safe_dump(without_secrets(self.config), sort_keys=False, allow_unicode=True)
        write_text(self.directory / CONFIG_FILE, text)
        self.tokenizer.save(self.directory / "tokenizer")

    def _check_first_step(self, trainer: Trainer) -> None:
        """Raise ResumeError, in all processes, if one read another checkpoint than the first."""
        # a shared disk may show a machine an older state, and nothing later would tell
        first = trainer.strategy.broadcast(self.first_step)
        if not trainer.strategy.reduce_boolean_decision(first == self.first_step):
            here = "" if first == self.first_step else f", this process from step {self.first_step}"
            raise ResumeError(
                f"--ckpt_path: process 0 continues from step {first}{here}: all have to see the "
                "same checkpoint (of a disk that they share); start them again"
            )

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put the config and the tokenizer into the checkpoint, which then stands alone."""
        assert isinstance(pl_module, BertModule)
        assert self.tokenizer is not None
        checkpoint[RUN_KEY] = {
            "version": __version__,
            "config_version": CONFIG_VERSION,
            "config": without_secrets(self.config),
            "data": self.data,
            KEY: {key: dict(self.facts.get(key) or {}) for key in _CODE},
            "tokenizer": self.tokenizer.to_json(),
            "token_counts": self.token_counts,
            "labels": self.labels,
            "history": pl_module.history,
            "optimizer_parameters": [
                name for each in trainer.optimizers for name in parameter_names(pl_module, each)
            ],
        }
        if self.head_labels:
            checkpoint[RUN_KEY]["head_labels"] = self.head_labels
        self.saved_step = trainer.global_step

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Compare the labels with the checkpoint's, and the code that wrote it.

        Raises:
            ResumeError: if they differ.
        """
        assert isinstance(pl_module, BertModule)
        for each in trainer.checkpoint_callbacks:
            if isinstance(each, ModelCheckpoint):
                state = checkpoint.get("callbacks", {}).get(each.state_key, {})
                check_chosen_files(state, each, str(trainer.ckpt_path))
        stored = checkpoint[RUN_KEY]
        here = {"": self.labels, **self.head_labels}
        there = {"": stored.get("labels"), **stored.get("head_labels", {})}
        check_same_labels(here, there)
        changes = changes_of_code(self.facts, stored.get(KEY) or self.before)  # of an older one
        if changes and trainer.is_global_zero:
            warn(
                "the run continues with other code than its checkpoint was written with: "
                f"{', '.join(changes)}; it is the same run only as far as these compute the same"
            )
        if "random_states" in stored and trainer.is_global_zero:  # of bertlab 0.1.0's early days
            warn(
                "dropout is no longer drawn as when this run began: if it has dropout, it "
                "continues with other draws"
            )
        pl_module.history = dict(checkpoint[RUN_KEY].get("history", {}))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the optimiser's state, which Lightning is about to give back."""
        if trainer.ckpt_path is not None:
            check = partial(check_optimizer_state, source=str(trainer.ckpt_path))
            for each in trainer.optimizers:
                each.register_load_state_dict_pre_hook(check)

    @contextlib.contextmanager
    def kept_if_it_begins(self, checkpoint: str | None) -> Iterator[None]:
        """Leave the directory as it was, if the block ends in an error before the first step.

        Raises:
            DamagedCheckpointError: the error arose while ``checkpoint`` was restored.
        """
        try:
            with refusing_other_state(checkpoint) if checkpoint else contextlib.nullcontext():
                yield
        except Exception:  # such as what Lightning or a callback refuses
            if self._is_claimed:
                give_back(self.directory, self._there)
            raise

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the directory from here on, whatever happens."""
        self._is_claimed = False

    def finish(self, results: dict[str, float], tables: list[Table]) -> None:
        """Tell all packages that the run has ended, and write ``results.json``: it is whole."""
        announce(
            "bertlab_run_ended", run_dir=self.directory, results=dict(results), tables=list(tables)
        )
        write_json(self.directory / RESULTS_FILE, results)
        announce("bertlab_run_written", run_dir=self.directory)


class WholeCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, so that neither a kill nor a power cut leaves half a file there.

    Lightning writes to ``/tmp`` and moves, which is a copy where that is another file system. The
    file is a zip archive whose records carry CRC-32 checksums; they are checked on load. Without
    the folder ``home`` nothing is written: where its disk has vanished, a checkpoint would go to
    the one below, and be missed.
    """

    def __init__(self, home: Path | None = None) -> None:
        super().__init__()
        self.home = home

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: object | None = None
    ) -> None:
        """Write a checkpoint, or leave what stood there before."""
        del storage_options
        path = Path(path)
        try:
            if self.home is not None and not self.home.is_dir():
                raise FileNotFoundError(errno.ENOENT, f"{self.home} is gone")
            make_folder(path.parent)
            # a run is written by one process, on whatever host it goes on after a kill
            with replacing(path, durable=True, sole_writer=True) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            words = f"{path}: the checkpoint cannot be written: {_reason(error)}"
            raise OutputError(f"{words}; those before it are whole") from error
        step = checkpoint.get("global_step", 0)
        announce("bertlab_checkpoint_written", path=path, step=step)


def _reason(error: BaseException) -> str:
    """Return what the system says; torch hides it behind its own error."""
    # torch's RuntimeError "PytorchStreamWriter failed" <- OSError "No space left on device"
    for each in causes(error):
        if isinstance(each, OSError):
            return each.strerror or str(each)
    return str(error).splitlines()[0]


def hashes_of(facts: Mapping[str, Any]) -> Hashes:
    """Return the hashes of a run's data, from what its manifest says or will say."""
    found = {name: facts.get(name) for name in ("corpus", "store", "tokenizer")}
    if isinstance(files := facts.get("store_files"), Mapping):
        found |= {f"store/{name}": sha256 for name, sha256 in files.items()}
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


def check_same_labels(here: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Raise ResumeError if classes or their counts differ; by head, of a single one by ``""``."""
    lines = []
    for head in {**here, **there}:
        ours, theirs = here.get(head), there.get(head)
        if ours != theirs:
            of = f" of data.heads.{head}" if head else ""
            lines.append(f"labels of the training data{of}: {ours} here, {theirs} there")
    refuse_other(lines, *OTHER_DATA)


def refuse_other(lines: list[str], what: str, remedy: str) -> None:
    """Raise ResumeError if there are lines of what differs."""
    if lines:
        listed = "\n  ".join(lines)
        told = f"--ckpt_path resumes a run exactly, but {what}:\n  {listed}"
        raise ResumeError(f"{told}\n{remedy}, or {_NEW_RUN}")


def plugin_facts(request: Request, config: Config) -> dict[str, dict[str, str]]:
    """Return what a manifest says of the plugins of a run."""
    hooks = dict(entry_package(entry) for entry in entry_points_of(HOOKS))  # called in every run
    left_out = {package: hooks.pop(package) for package in request.without_hooks}
    return {**facts_of(_used(request, config), hooks), "hooks_left_out": left_out}


def facts_of(
    plugins: Iterable[Plugin], hooks: Mapping[str, str] = MappingProxyType({})
) -> dict[str, dict[str, str]]:
    """Return what :func:`plugin_facts` does, of plugins and of packages with hooks."""
    used = list(plugins)
    versions = {each.package: each.version for each in used} | dict(hooks)
    others = [package for package in versions if package not in FIRST_PARTY]
    return {
        "plugins": {
            RECORDED_AS if package in FIRST_PARTY else package: version
            for package, version in versions.items()
        },
        "plugin_contents": {package: content_hash(package) for package in others},
        "plugin_names": {
            f"{each.kind} {each.name}": each.package for each in used if each.package in others
        },
    }


def _used(request: Request, config: Config) -> Iterator[Plugin]:
    """Yield the plugins that a config names; a class of torch.optim is none."""
    data, evaluations = config["data"], (config.get("evaluations") or {}).values()
    locations = [data.get("source"), *Corpus.of(data.get("corpus")).sources]
    sources = [source_of(each) for each in locations if isinstance(each, str)]
    named: list[tuple[Kind, str | None]] = [
        *((kind, getattr(request, kind)) for kind in PLUGIN_SECTIONS.values()),
        *(("head", name) for name in request.heads.values()),
        *(("objective", name) for name in request.objectives),
        *(("metric", name) for name in request.metrics),
        *(("transform", name) for name in request.transforms),
        *(("source", each) for each in sources),
        *(("format", each.get("format")) for each in (data, *(data.get("heads") or {}).values())),
        *(("evaluation", each.get("evaluation")) for each in evaluations),
    ]
    yield from (installed(kind)[name] for kind, name in named if name and name in installed(kind))


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
