"""``bertlab fit``, ``validate`` and ``predict``: LightningCLI with plugins named in the config."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from bertlab.api.task import Task, TaskContext, check_tasks
from bertlab.checkpoints.restore import StartingPoint, find_starting_point
from bertlab.checkpoints.run_directory import (
    MANIFEST,
    choose_run_directory,
    manifest,
)
from bertlab.cli.fit import COMMANDS, how_to_go_on
from bertlab.config.compose import Composition, compose
from bertlab.config.parser import (
    TRAINER_DEFAULTS,
    add_data,
    add_model,
    add_run,
    add_trainer,
    data_class,
)
from bertlab.config.resolve import parse_plan, plain_config
from bertlab.config.seeding import choose_seed
from bertlab.data.module import TaskData
from bertlab.errors import CommandError
from bertlab.model.build import (
    build_encoder,
    build_metrics,
    build_tasks,
    check_lengths,
    compile_layers,
    compile_losses,
)
from bertlab.model.module import BertModule
from bertlab.model.optimizer import AdamWConfig
from bertlab.model.schedule import check_schedule, check_schedule_steps, run_timer
from bertlab.plugins.hooks import run_callbacks
from bertlab.plugins.index import installed
from bertlab.tokenizer.wordpiece import WordPieceTokenizer
from bertlab.training.allocator import keep_freed_memory
from bertlab.training.callbacks.best_checkpoint import check_early_stopping, choose_monitor
from bertlab.training.callbacks.run_record import RunRecord, check_same_computation
from bertlab.training.callbacks.stop_on_signal import StopOnSignal
from bertlab.training.exit import naming_losses
from bertlab.training.length import is_endless, steps_for_tokens, training_size
from bertlab.training.repeated import find_repetition, fit_repeatedly
from bertlab.training.trainer import make_trainer, quiet_lightning


def main(command: str, argv: list[str]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; return the exit code."""
    quiet_lightning()
    keep_freed_memory()
    plan = compose(argv)
    repetition = find_repetition(argv, plan) if command == "fit" else None
    if repetition is not None:
        return fit_repeatedly(repetition)
    helping = "-h" in argv or "--help" in argv
    if command != "fit" and plan.ckpt_path is None and plan.init_from is None and not helping:
        raise CommandError(
            f"{command}: no weights; expected --ckpt_path with a run or checkpoint, or "
            "--model.init_from with a Hugging Face model"
        )
    start = find_starting_point(plan, command)
    if start.checkpoint is not None and not plan.files:
        plan = compose(argv, base=start.checkpoint.config)
    cli = TrainingCLI(command, plan, start)
    with naming_losses(cli.trainer.world_size, cli.directory, partial(how_to_go_on, cli)):
        return COMMANDS[command](cli)


class TrainingCLI(LightningCLI):
    """Builds trainer, data and module from a composition of config files and arguments.

    Args:
        command: ``fit``, ``validate``, ``test`` or ``predict``.
        plan: config files, arguments, and the plugins that they name.
        start: where weights come from.
    """

    model: BertModule
    datamodule: TaskData
    trainer: Trainer

    def __init__(self, command: str, plan: Composition, start: StartingPoint) -> None:
        self.command = command
        self.plan = plan
        self.start = start
        self.checkpoint = start.checkpoint
        self.data_class = data_class(plan)
        super().__init__(
            BertModule,
            self.data_class,
            save_config_callback=None,
            trainer_defaults=TRAINER_DEFAULTS,
            parser_kwargs={"exit_on_error": False, "prog": f"bertlab {command}"},
            args=plan.arguments,
            run=False,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the trainer, the named encoder and tasks, the optimiser and the data."""
        add_trainer(parser)
        sized = self.plan.init_from is not None  # what it brought once is in the checkpoint
        add_model(parser, self.plan, self.start.encoder if sized else None)
        add_data(parser, self.plan)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what belongs to the run as a whole."""
        add_run(parser, self.command)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401
        """Print the help, or parse each config file and then the arguments that override them."""
        if "-h" in args or "--help" in args:
            parser.print_help()
            raise SystemExit(0)
        self.config = parse_plan(parser, self.plan, args)

    def _set_seed(self) -> None:
        """Seed everything; without a seed in the config, draw one and record it."""
        resumed = None if self.checkpoint is None else self.checkpoint.config["seed_everything"]
        self.config.seed_everything = choose_seed(self.config.seed_everything, resumed)
        seed_everything(self.config.seed_everything, workers=True, verbose=False)

    def instantiate_classes(self) -> None:
        """Make data and tasks, the trainer, which checks its settings, and then the module."""
        self.config_init = self.parser.instantiate_classes(self.config)
        self.resolved = plain_config(self.parser, self.config, self.plan)
        if self.checkpoint is not None and self.command == "fit":
            check_same_computation(self.resolved, self.checkpoint.config)
        self.directory = self._choose_directory()
        settings = {**self.resolved["data"], "seed": self.config.seed_everything}
        self.datamodule = self.data_class(**settings)
        tasks = build_tasks(self.resolved["model"])
        self.trainer = self._make_trainer()
        tokenizer = self.start.choose_tokenizer(self.datamodule)
        self.datamodule.connect(tokenizer, tasks)
        if self.checkpoint is not None and self.command != "fit":
            self._prepare()
            self.model = self.start.restore(self.resolved, tasks, self.datamodule)
            check_lengths(self.datamodule.max_seq_length, self.model.encoder)
        else:
            self.model = self._build(tasks, tokenizer)
        if not self.config.model.from_scratch:
            for line in self.start.apply(self.model):
                self._note(line)
        self.start.release_weights()
        self.datamodule.encode()
        if self.command == "fit":
            self._check_fit()
            self.record = self._record(tokenizer)
            self.trainer.callbacks.insert(0, self.record)  # type: ignore[attr-defined]

    def _build(self, tasks: dict[str, Task], tokenizer: WordPieceTokenizer) -> BertModule:
        """Make a module with new weights; what can be wrong is checked before data is prepared."""
        encoder = build_encoder(self.resolved["model"]["encoder"], tokenizer.vocab_size)
        check_lengths(self.datamodule.max_seq_length, encoder)
        check_tasks(tasks, encoder)
        optimizer = AdamWConfig(**self.resolved["model"]["optimizer"])
        self._prepare()
        counts = None if self.command == "predict" else self.datamodule.token_counts
        labels = self.datamodule.labels if self.command == "fit" else self.start.labels
        context = TaskContext(encoder, tokenizer, counts, labels)
        metrics = build_metrics(self.resolved["model"])
        rows = self.datamodule.evaluation_rows()
        return BertModule(encoder, tasks, context, optimizer, rows, metrics)

    def _prepare(self) -> None:
        """Read the data, which may take long; predictions bring their own."""
        if self.command != "predict":
            self.datamodule.prepare(self.command)

    def _check_fit(self) -> None:
        """Find what would stop the run, before its directory is made."""
        trainer = self.trainer
        if self.config.max_tokens is not None:
            steps = steps_for_tokens(self.config.max_tokens, trainer, self.datamodule)
            trainer.fit_loop.epoch_loop.max_steps = steps
        endless = is_endless(trainer.max_steps, trainer.max_epochs)
        check_schedule(self.model.optimizer_config, endless, run_timer(trainer) is not None)
        done = 0 if self.model.continued is None else self.model.continued.steps
        check_schedule_steps(self.model.optimizer_config, done, trainer.max_steps)
        self.datamodule.check_division(trainer.world_size, trainer.accumulate_grad_batches)
        self._choose_best_by()
        self.model.numerical_guard.policy = self.config.on_nonfinite
        if self.config.compile:
            compile_layers(self.model.encoder)
            compile_losses(self.model.tasks)

    def is_saved(self) -> bool:
        """Return whether there is a checkpoint to go on from."""
        return self.record.saved_step >= 0 or self.checkpoint is not None

    def _note(self, line: str) -> None:
        """Say where weights come from; predictions have the standard output for themselves."""
        if self.trainer.is_global_zero:
            (sys.stderr if self.command == "predict" else sys.stdout).write(line + "\n")

    @property
    def parameters(self) -> int:
        """Number of trainable parameters, heads included."""
        return sum(each.numel() for each in self.model.parameters() if each.requires_grad)

    def _choose_directory(self) -> Path:
        if self.command != "fit":
            return Path()
        return self._resumed_run() or choose_run_directory(self.config.run_dir, self.plan.run_name)

    def _resumed_run(self) -> Path | None:
        """Return the run that goes on in its own directory; None for a new directory."""
        if self.checkpoint is None:
            return None
        run = self.checkpoint.path.parent.parent
        if self.config.run_dir is not None and Path(self.config.run_dir).resolve() != run.resolve():
            return None
        return run if (run / MANIFEST).is_file() else None

    def _make_trainer(self) -> Trainer:
        settings = dict(self.config_init.trainer)
        if self.command != "fit":
            return make_trainer(settings)
        callbacks = run_callbacks(self.directory)
        place = Path(self.config.checkpoint.dirpath or self.directory / "checkpoints")
        saves = settings["enable_checkpointing"] is not False
        callbacks.append(StopOnSignal(place / "last.ckpt" if saves else None))
        if saves:
            settings_here = {**dict(self.config.checkpoint), "dirpath": place, "monitor": None}
            callbacks.append(ModelCheckpoint(**settings_here))  # the monitor is known later
        return make_trainer(settings, self.directory, callbacks)

    def _choose_best_by(self) -> None:
        """Let the best checkpoint be chosen by the metric that the config or the head names."""
        settings = choose_monitor(
            dict(self.config.checkpoint), self.model, self.datamodule.first_evaluation
        )
        callbacks: list[Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
        check_early_stopping(callbacks, self.model)
        for place, callback in enumerate(callbacks):
            if type(callback) is ModelCheckpoint:
                callbacks[place] = ModelCheckpoint(**{**settings, "dirpath": callback.dirpath})

    def _record(self, tokenizer: WordPieceTokenizer) -> RunRecord:
        named = [installed("encoder")[self.plan.encoder]]
        named += [installed("objective")[name] for name in self.plan.objectives]
        named += [installed("metric")[name] for name in self.plan.metrics]
        named += [] if self.plan.head is None else [installed("head")[self.plan.head]]
        data = self.datamodule
        facts = {
            "seed": self.config.seed_everything,
            "threads": torch.get_num_threads(),
            "tokenizer": tokenizer.fingerprint,
            "parameters": self.parameters,
            **data.facts(),
            **training_size(self.trainer, data),
        }
        plugins = {plugin.package: plugin.version for plugin in named}
        counts = None if data.token_counts is None else torch.from_numpy(data.token_counts)
        record = manifest(plugins, facts)
        goes_on = self.directory == self._resumed_run()
        return RunRecord(
            self.directory, self.resolved, record, tokenizer, counts, data.labels, goes_on
        )
