"""The run's record: what is needed to repeat it, in its directory and in every checkpoint."""

from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from bertlab.api.examples import Labels
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.run_checkpoint import RUN_KEY
from bertlab.checkpoints.run_directory import claim
from bertlab.config.seeds import SECTION, Seeds
from bertlab.config.yaml_files import differences
from bertlab.errors import ResumeError
from bertlab.files import write_text
from bertlab.model.module import BertModule
from bertlab.model.optimizer import parameter_names

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


class RunRecord(Callback):
    """Writes ``config.yaml``, ``manifest.json`` and the tokenizer; refuses a changed resumption.

    Args:
        directory: of the run.
        config: the resolved config.
        goes_on: the run goes on in its own directory, which has a record.
    """

    def __init__(self, directory: Path, config: dict[str, Any], goes_on: bool) -> None:
        self.directory = directory
        self.config = config
        self.goes_on = goes_on
        self.saved_step = -1  # optimiser step of the last checkpoint
        self.facts: dict[str, Any] = {}
        self.tokenizer: Tokenizer | None = None
        self.token_counts: Tensor | None = None
        self.labels: dict[str, Any] | None = None
        self._random_states: list[dict[str, Any]] = []  # of each process that was

    def describe(
        self,
        facts: dict[str, Any],
        tokenizer: Tokenizer,
        token_counts: Tensor | None,
        labels: Labels | None,
    ) -> None:
        """Set what is known only once the data has been read; called before training starts.

        Args:
            facts: content of the manifest.
            tokenizer: of the run.
            token_counts: ``(vocab_size,)`` of the training text; None of labelled rows.
            labels: the classes of a head; None if it has none.
        """
        self.facts = facts
        self.tokenizer = tokenizer
        self.token_counts = token_counts
        self.labels = None if labels is None else labels.to_dict()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the record when training starts, on the first device only."""
        if stage != "fit" or not trainer.is_global_zero:
            return
        if self.goes_on:  # keeps the record of its start
            return
        assert self.tokenizer is not None, "describe() comes first"
        # the first write: of two runs that chose this directory, one ends here, before any log
        claim(self.directory, self.facts)
        text = yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True)
        write_text(self.directory / "config.yaml", text)
        self.tokenizer.save(self.directory / "tokenizer")

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put the config and the tokenizer into the checkpoint, which then stands alone."""
        assert isinstance(pl_module, BertModule)
        assert self.tokenizer is not None
        checkpoint[RUN_KEY] = {
            "config": self.config,
            "tokenizer": self.tokenizer.to_json(),
            "token_counts": self.token_counts,
            "labels": self.labels,
            "history": pl_module.history,
            "optimizer_parameters": [
                name for each in trainer.optimizers for name in parameter_names(pl_module, each)
            ],
            "random_states": gather_random_states(trainer.world_size),
        }
        self.saved_step = trainer.global_step

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Compare the labels with the checkpoint's; keep its random states for the first step.

        Raises:
            ResumeError: if they differ.
        """
        assert isinstance(pl_module, BertModule)
        theirs = checkpoint[RUN_KEY].get("labels")
        if theirs != self.labels:
            raise ResumeError(
                "--ckpt_path resumes a run exactly, but the labels of the training data differ "
                f"from the checkpoint's: {self.labels} here, {theirs} there"
            )
        self._random_states = checkpoint[RUN_KEY].get("random_states", [])
        pl_module.history = dict(checkpoint[RUN_KEY].get("history", {}))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the random state that dropout goes on from; each process has its own."""
        # as late as can be: what Lightning sets up before the first step may draw numbers
        rank = trainer.global_rank
        if rank < len(self._random_states):
            state = self._random_states[rank]
            torch.set_rng_state(state["cpu"])
            if torch.cuda.is_available() and state["cuda"] is not None:
                torch.cuda.set_rng_state(state["cuda"])
        elif rank > 0:  # all were seeded alike, for equal weights
            torch.manual_seed(torch.initial_seed() + rank)


def gather_random_states(world_size: int) -> list[dict[str, Any]]:
    """Return the state of each process's generators, of its CPU and of its own GPU."""
    here = {
        "cpu": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    if world_size == 1:
        return [here]
    # all_gather_object overwrites each place
    states: list[dict[str, Any]] = [here] * world_size
    torch.distributed.all_gather_object(states, here)
    return states


def check_same_computation(config: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Refuse to resume a run with a config that computes something else.

    Args:
        config: the resolved config.
        theirs: of the checkpoint.

    Raises:
        ResumeError: if they differ in what the run computes; the differences are listed.
    """
    changed = differences(_computed(config), _computed(theirs))
    if changed:
        raise ResumeError(
            "--ckpt_path resumes a run exactly, but the config differs from the checkpoint's "
            "(here, there):\n  "
            + "\n  ".join(changed)
            + "\nGo on with the checkpoint's config, or start a new run from its weights by "
            "--model.init_from"
        )


def _computed(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a config that decides what a run computes."""
    kept: dict[str, Any] = {
        "seed_everything": config["seed_everything"],
        SECTION: Seeds.of(config).apart(config["seed_everything"]),
        "model": {key: value for key, value in config["model"].items() if key != "init_from"},
    }
    # older checkpoints lack stages
    kept |= {key: config.get(key) for key in ("max_tokens", "max_words", "stages")}
    for section, free in _FREE.items():
        kept[section] = {key: value for key, value in config[section].items() if key not in free}
    return kept
