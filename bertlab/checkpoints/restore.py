"""Where a command's weights, tokenizer and labels come from: a checkpoint, a warm start, or new."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmetrics import Metric

from bertlab.api.examples import Labels, Row
from bertlab.api.task import Task, TaskContext
from bertlab.checkpoints.loading import load_matching
from bertlab.checkpoints.run_checkpoint import (
    RunCheckpoint,
    find_checkpoint,
    read_run_checkpoint,
)
from bertlab.checkpoints.run_directory import MANIFEST
from bertlab.checkpoints.warm_start import WarmStart, apply_warm_start, read_warm_start
from bertlab.config.compose import Composition
from bertlab.config.yaml_files import Config, differences
from bertlab.data.module import TaskData
from bertlab.errors import CheckpointError, ConfigError, TokenizerError
from bertlab.model.build import build_encoder, build_metrics
from bertlab.model.module import BertModule
from bertlab.model.optimizer import AdamWConfig, build_optimizer
from bertlab.tokenizer.wordpiece import WordPieceTokenizer

LAST = "last"  # a --ckpt_path: the config's own run


@dataclass
class StartingPoint:
    """What a command starts from.

    Attributes:
        checkpoint: of ``--ckpt_path``: to go on with (fit) or to use.
        warm: of ``model.init_from``, if there is no checkpoint.
    """

    checkpoint: RunCheckpoint | None = None
    warm: WarmStart | None = None

    @property
    def encoder(self) -> Config | None:
        """The encoder that the weights are of, with its ``name``; a config need not repeat it."""
        if self.checkpoint is not None:
            found: Config = self.checkpoint.config["model"]["encoder"]
            return found
        if self.warm is None:
            return None
        return {**self.warm.encoder_config, "name": self.warm.encoder_name}

    @property
    def labels(self) -> Labels | None:
        """The classes that its head was trained for."""
        if self.checkpoint is not None:
            return self.checkpoint.labels
        return None if self.warm is None else self.warm.labels

    def choose_tokenizer(self, data: TaskData) -> WordPieceTokenizer:
        """Return the tokenizer that the weights were trained with, or the one that data gives.

        Raises:
            TokenizerError: if data gives another than the weights', or one of another size.
        """
        if self.checkpoint is not None:
            return self.checkpoint.tokenizer
        if self.warm is None:
            return data.load_tokenizer()
        if self.warm.tokenizer is None:
            tokenizer = data.load_tokenizer()
        else:
            tokenizer = self.warm.tokenizer
            self._check_same(tokenizer, data.tokenizer_path)
        if tokenizer.vocab_size != self.warm.vocab_size:
            raise TokenizerError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the encoder of "
                f"{self.warm.source} {self.warm.vocab_size}; give its own as data.tokenizer"
            )
        return tokenizer

    def restore(self, config: Config, tasks: Mapping[str, Task], data: TaskData) -> BertModule:
        """Return the checkpoint's module.

        Raises:
            CheckpointError: if the config describes another model; the differences are listed.
        """
        assert self.checkpoint is not None
        changed = differences(_structure(config), _structure(self.checkpoint.config))
        if changed:
            raise CheckpointError(
                f"{self.checkpoint.path}: the config describes another model (here, there):\n  "
                + "\n  ".join(changed)
            )
        metrics = build_metrics(config["model"])
        return restore_module(self.checkpoint, tasks, data.evaluation_rows(), metrics)

    def apply(self, module: BertModule) -> list[str]:
        """Give a new module what a warm start brings; return what the user is to know of it.

        Raises:
            CheckpointError: if tensors differ.
        """
        if self.warm is None:
            return []
        report = apply_warm_start(self.warm, module)
        lines = [f"initialised from {self.warm.source}: {len(report.loaded)} tensors"]
        if report.newly_initialized:
            lines.append(f"newly initialised: {', '.join(report.newly_initialized)}")
        lines += [f"note: {note}" for note in report.notes]
        state, self.warm.optimizer = self.warm.optimizer, None  # the module lets go of it, too
        if state is not None:
            state.check(module, build_optimizer(module.optimizer_config, module))
            module.continued = state
            lines.append(f"its optimiser goes on too, at step {state.steps:,} of the schedule")
        return lines

    def release_weights(self) -> None:
        """Let go of the weights, once the module has them: a copy in memory, or a mapped file."""
        if self.checkpoint is not None:
            self.checkpoint.state = {}
        if self.warm is not None:
            self.warm.release_weights()

    def _check_same(self, tokenizer: WordPieceTokenizer, given: str | None) -> None:
        assert self.warm is not None
        if given is not None and (
            WordPieceTokenizer.load(Path(given)).fingerprint != tokenizer.fingerprint
        ):
            raise TokenizerError(
                f"data.tokenizer: {given} is not the tokenizer that {self.warm.source} "
                "was trained with; leave data.tokenizer out to use that one"
            )


def restore_module(
    checkpoint: RunCheckpoint,
    tasks: Mapping[str, Task],
    evaluation_rows: Mapping[str, Sequence[Row]] | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> BertModule:
    """Make the module of a checkpoint, with its weights.

    Args:
        checkpoint: gives encoder, optimiser settings, tokenizer, labels and weights.
        tasks: of the same names as the checkpoint's, not built yet.
        evaluation_rows: as for :class:`bertlab.model.module.BertModule`.
        metrics: likewise.
    """
    model = checkpoint.config["model"]
    encoder = build_encoder(model["encoder"], checkpoint.tokenizer.vocab_size)
    counts = None if checkpoint.token_counts is None else checkpoint.token_counts.numpy()
    context = TaskContext(encoder, checkpoint.tokenizer, counts, checkpoint.labels)
    optimizer = AdamWConfig(**model["optimizer"])
    module = BertModule(encoder, tasks, context, optimizer, evaluation_rows, metrics)
    load_matching(module, checkpoint.state, str(checkpoint.path))
    return module


def find_starting_point(plan: Composition, command: str) -> StartingPoint:
    """Read what a command line names; ``fit`` goes on from a run's last checkpoint, not its best.

    Raises:
        CheckpointError: if it is not there, damaged or hostile.
    """
    if plan.ckpt_path == LAST:
        plan.ckpt_path = None if (run := last_run(plan)) is None else str(run)
        if run is None and command != "fit":
            raise CheckpointError(f"--ckpt_path {LAST}: no run of this config has a checkpoint")
        if run is None and plan.run_dir is not None:  # ended before its first checkpoint
            (Path(plan.run_dir) / MANIFEST).unlink(missing_ok=True)
    if plan.ckpt_path is not None:
        file = find_checkpoint(plan.ckpt_path, best=command != "fit")
        if file is None:
            raise CheckpointError(f"--ckpt_path: {plan.ckpt_path}: no such run or checkpoint")
        start = StartingPoint(checkpoint=_read_or_offer(file))
        if plan.init_from is not None and not plan.encoder_named and start.encoder is not None:
            plan.encoder = start.encoder["name"]
        return start
    return StartingPoint(warm=_find_warm_start(plan))


def _find_warm_start(plan: Composition) -> WarmStart | None:
    """Read what ``model.init_from`` names; the encoder is that one's, if none is named."""
    if plan.init_from is None:
        if plan.init_optimizer:
            raise ConfigError(
                "model.init_optimizer: expected model.init_from beside it, with the run whose "
                "optimiser is to go on"
            )
        return None
    warm = read_warm_start(plan.init_from, plan.init_optimizer)
    if plan.encoder_named and plan.encoder != warm.encoder_name:
        raise ConfigError(
            f"model.encoder: found {plan.encoder}, but the encoder of model.init_from, "
            f"{warm.source}, is {warm.encoder_name}; leave model.encoder.name out"
        )
    plan.encoder = warm.encoder_name
    return warm


def last_run(plan: Composition) -> Path | None:
    """Return the run of a config with the newest checkpoint; that in ``run_dir`` if it is given."""
    name = plan.run_name
    if plan.run_dir is not None:
        runs = [Path(plan.run_dir)]
    else:
        numbered = re.compile(rf"{re.escape(name)}(-\d+)?")
        runs = [each for each in Path("runs").glob(f"{name}*") if numbered.fullmatch(each.name)]
    files = [file for run in runs for file in (run / "checkpoints").glob("last.ckpt")]
    newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
    return None if newest is None else newest.parent.parent


def _read_or_offer(file: Path) -> RunCheckpoint:
    """Read a checkpoint; the error of a damaged one names the newest whole one beside it."""
    try:
        return read_run_checkpoint(file)
    except CheckpointError as error:
        others = [other for other in file.parent.glob("*.ckpt") if other != file]
        newest_first = sorted(others, key=lambda each: each.stat().st_mtime, reverse=True)
        whole = next(filter(_is_whole, newest_first), None)
        if whole is None:
            raise
        raise CheckpointError(f"{error}; a whole one: --ckpt_path {whole}") from None


def _is_whole(file: Path) -> bool:
    try:
        read_run_checkpoint(file)
    except CheckpointError:
        return False
    return True


def _structure(config: Config) -> Config:
    """Return what decides the tensors of a model."""
    model = config["model"]
    head = model.get("head") or {}
    return {
        "encoder": model["encoder"],
        "objectives": dict.fromkeys(model.get("objectives") or {}, "on"),
        "head": head.get("name"),
    }
