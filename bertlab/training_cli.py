"""``bertlab fit``, ``validate`` and ``predict``: LightningCLI with plugins named in the config."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from bertlab.best_checkpoint import check_early_stopping, choose_monitor, record_best
from bertlab.callbacks.run_record import RunRecord, check_same_computation
from bertlab.callbacks.stop_on_sigterm import StopOnSigterm
from bertlab.checkpoints.warm_start import apply_warm_start
from bertlab.compilation import compile_layers
from bertlab.composition import Composition, compose
from bertlab.data.task_data import TaskData
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.errors import CommandError
from bertlab.heap import keep_freed_memory
from bertlab.hooks import run_callbacks
from bertlab.model_building import build_encoder, build_metrics, build_tasks, check_lengths
from bertlab.module import BertModule, check_tasks
from bertlab.optimization import AdamWConfig, check_schedule, run_timer
from bertlab.plugins import installed
from bertlab.predictions import open_sink, write_predictions
from bertlab.printed_tables import print_table
from bertlab.repeated_fit import find_repetition, fit_repeatedly
from bertlab.resolved_config import parse_plan, plain_config
from bertlab.results import held_out_results, print_results
from bertlab.run_directory import (
    COMPLAINTS,
    MANIFEST,
    PREDICTIONS,
    RESULTS,
    choose_run_directory,
    manifest,
    write_json,
)
from bertlab.seeding import choose_seed
from bertlab.starting_point import StartingPoint, find_starting_point
from bertlab.tasks import Task, TaskContext
from bertlab.trainer import make_trainer, quiet_lightning
from bertlab.training_end import naming_losses, train
from bertlab.training_length import is_endless, steps_for_tokens, training_size
from bertlab.training_parser import (
    TRAINER_DEFAULTS,
    add_data,
    add_model,
    add_run,
    add_trainer,
    data_class,
)


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
    run = {"fit": cli.fit, "validate": cli.score, "test": cli.score, "predict": cli.predict}
    with naming_losses(cli.trainer.world_size, cli.directory, cli.how_to_go_on):
        return run[command]()


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
        if self.start.warm is not None and not self.config.model.from_scratch:
            report = apply_warm_start(self.start.warm, self.model)
            self._note(f"initialised from {self.start.warm.source}: {len(report.loaded)} tensors")
            if report.newly_initialized:
                self._note(f"newly initialised: {', '.join(report.newly_initialized)}")
            for note in report.notes:
                self._note(f"note: {note}")
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
        self.datamodule.check_division(trainer.world_size, trainer.accumulate_grad_batches)
        self._choose_best_by()
        self.model.on_nonfinite = self.config.on_nonfinite
        if self.config.compile:
            compile_layers(self.model.encoder)

    def fit(self) -> int:
        """Train, evaluate once more at the end, and print where everything is."""
        path = None if self.checkpoint is None else str(self.checkpoint.path)
        if self.trainer.is_global_zero:
            self._introduce()
        fit = partial(
            self.trainer.fit, self.model, self.datamodule, ckpt_path=path, weights_only=True
        )
        code = train(fit, self.trainer, self.directory, self._is_saved)
        if code == 0:
            self._finish()
        return code

    def score(self) -> int:
        """Score the model on the held-out text, or on the validation or test sets."""
        run = self.trainer.validate if self.command == "validate" else self.trainer.test
        run(self.model, self.datamodule, verbose=False)
        if self.trainer.is_global_zero:
            stage = "val" if self.command == "validate" else "test"
            title = "held-out text" if self.plan.head is None else f"{self.command} rows"
            print_results(held_out_results(self.trainer, stage), title)
            self._complain()
        return 0

    def predict(self) -> int:
        """Print predictions as JSON lines, or write them to ``--output``, while they are made."""
        sink = open_sink(self.config.output, self.config.output_format, self.model.head)
        write_predictions(self.trainer, self.model, self.datamodule, sink)
        return 0

    def how_to_go_on(self) -> str:
        """Return what is said to a user whose command lost a process or its disk."""
        if self.command != "fit":
            return ""
        if not self._is_saved():
            return " before the first checkpoint"
        return f"; go on with: bertlab fit --ckpt_path {self.directory}"

    def _is_saved(self) -> bool:
        return self.record.saved_step >= 0 or self.checkpoint is not None

    def _note(self, line: str) -> None:
        """Say where weights come from; predictions have the standard output for themselves."""
        if self.trainer.is_global_zero:
            (sys.stderr if self.command == "predict" else sys.stdout).write(line + "\n")

    def _complain(self) -> None:
        for complaint in self.model.complaints:
            sys.stderr.write(f"warning: {complaint}\n")

    def _finish(self) -> None:
        """Save and score the last step, if no evaluation fell on it, and print the figures."""
        step = self.trainer.global_step
        resumed_step = None if self.checkpoint is None else self.checkpoint.global_step
        saved = step in (self.record.saved_step, resumed_step)
        if not saved and self.resolved["trainer"]["enable_checkpointing"] is not False:
            self.trainer.save_checkpoint(self.directory / "checkpoints" / "last.ckpt")
        if self.model.evaluated_step != step:
            if step in self.model.history:  # logged before the run was resumed
                self.trainer.loggers = []
            self.trainer.validate(self.model, self.datamodule, verbose=False)
        results = held_out_results(self.trainer, "val")
        if self.config.keep_predictions:
            self._keep_predictions()
        if self.trainer.is_global_zero:
            print_results(results, f"{self.directory}: step {step}")
            if self.plan.head is not None:
                best = record_best(self.trainer, self.model, self.directory)
                if best is not None:
                    _say(best)
            self._complain()
            if self.model.complaints:
                write_json(self.directory / COMPLAINTS, self.model.complaints)
            write_json(self.directory / RESULTS, results)  # the last: the run is whole

    def _keep_predictions(self) -> None:
        """Write what the last step predicts for the validation rows."""
        self.datamodule.predict_validation()
        sink = open_sink(str(self.directory / PREDICTIONS), "jsonl", self.model.head)
        write_predictions(self.trainer, self.model, self.datamodule, sink)

    def _introduce(self) -> None:
        """Print the data report and what is about to run."""
        for title, rows in self.datamodule.report_tables():
            print_table(title, rows)
        _say(
            f"{self.directory}: {self.parameters:,} parameters, "
            f"{self.datamodule.sequences_per_step()} sequences a step, "
            f"seed {self.config.seed_everything}"
        )

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
        if settings["enable_checkpointing"] is not False:
            place = self.config.checkpoint.dirpath or self.directory / "checkpoints"
            settings_here = {**dict(self.config.checkpoint), "dirpath": place, "monitor": None}
            callbacks.append(StopOnSigterm(Path(place) / "last.ckpt"))
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


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
