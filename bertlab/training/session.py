"""``Session``: builds trainer, data and module of one command from its config, and runs it."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import (
    choose_tokenizer,
)
from bertlab.checkpoints.run_directory import (
    DEGENERATE_FILE,
    PREDICTIONS_FILE,
    RESULTS_FILE,
    choose_run_directory,
    machine_facts,
    manifest,
    resumed_run,
)
from bertlab.config.checkpoint_config import check_file_name
from bertlab.config.parser import data_class
from bertlab.config.run_config import RunConfig
from bertlab.data.filling import Filling
from bertlab.data.module import TaskData
from bertlab.errors import CommandError, check_at_least, say, warn
from bertlab.files import write_json
from bertlab.model.build import build_tasks, compile_layers, compile_losses
from bertlab.model.schedule import asked_steps, check_end, training_size
from bertlab.model.step_graphs import use_own_stream
from bertlab.objectives.changing import in_words
from bertlab.objectives.language_model import TokenPrediction
from bertlab.plugins.hooks import run_callbacks, run_ended
from bertlab.training.callbacks.best_checkpoint import (
    BestCheckpoint,
    check_early_stopping,
    choose_monitor,
    record_best,
)
from bertlab.training.callbacks.run_record import RunRecord
from bertlab.training.console import print_table
from bertlab.training.exit import StopOnSignal, how_to_resume, naming_losses, train
from bertlab.training.loggers import ConfigLog, close_trackers, make_loggers
from bertlab.training.made_with import plugin_facts
from bertlab.training.module_building import ModuleBuilder
from bertlab.training.predictions import PredictionWriter, open_sink
from bertlab.training.results import held_out_results, print_results
from bertlab.training.resumption import Resumption
from bertlab.training.step_memory import AUTO, StepMemory, choose_parts
from bertlab.training.trainer import can_replay, make_trainer


class Session:
    """Trainer, data and module of one command; :meth:`run` executes it.

    Args:
        config: of the command.
        checkpoint: of ``--ckpt_path``: to go on with (``fit``) or to use.
        warm: of ``model.init_from``, where there is no checkpoint.
        whole: directory of the run in stages that this is a stage of.
        rehearses: it is built for its checks only.

    Attributes:
        directory: of the run that ``fit`` makes or goes on with.
        data: the DataModule.
        tokenizer: that encodes its text.
        model: the LightningModule.
        trainer: Lightning's.
    """

    def __init__(
        self,
        config: RunConfig,
        checkpoint: Pretrained | None,
        warm: Pretrained | None,
        whole: Path | None = None,
        rehearses: bool = False,
    ) -> None:
        self.config = config
        self.checkpoint = checkpoint
        self.warm = warm
        self.fits = config.command == "fit"
        if config.command == "test" and not config.request.fine_tunes:
            raise CommandError(
                "test: pre-training has no test rows, expected a model with a head; "
                "bertlab validate scores a pre-trained one on held-out text"
            )
        goes_on = Resumption(config, checkpoint if self.fits else None)
        goes_on.check_config()
        seeds = config.seeds
        seed_everything(seeds.weights, workers=True, verbose=False)  # before they are drawn
        self.directory, resumed = Path(), None
        if self.fits:
            given = config.values.run_dir
            resumed = None if checkpoint is None else resumed_run(checkpoint.path, given)
            self.directory = resumed or choose_run_directory(
                given, config.request.run_name, is_stage=whole is not None
            )
        self.whole = whole or self.directory
        self.record = RunRecord(self.directory, config.plain, resumed is not None, checkpoint)
        predicts = config.command == "predict" or config.values.get("keep_predictions", False)
        self.memory: StepMemory | None = None
        self.weights: str | None = None
        self.writers = [PredictionWriter()] if predicts else []
        masks = {"mask_seed": seeds.masks} if config.request.objectives else {}
        arguments = {**config.plain["data"], "seed": seeds.order, **masks}
        self.data: TaskData = data_class(config.request)(**arguments)
        tasks = build_tasks(config.plain["model"])
        self.added = run_callbacks(self.directory, config.values) if self.fits else []
        self.facts: dict[str, Any] = {}  # that these have for the manifest
        self.trainer = self._make_trainer()  # checks its settings before the data is read
        goes_on.check_tokenizer()
        self.tokenizer = tokenizer = choose_tokenizer(checkpoint, warm, self.data)
        self.data.connect(tokenizer, tasks)
        prints = self.trainer.is_global_zero and not rehearses
        if warm is not None and prints and self.fits and not config.plain["model"]["from_scratch"]:
            self.weights = warm.weights_digest()  # before they are let go
        builder = ModuleBuilder(config, self.data, checkpoint, warm, prints)
        self.model = builder.build(tasks, tokenizer)
        goes_on.check_data(self.data)
        self.data.encode()  # by the head, whose labels are known now
        if self.fits:
            self._check_fit()
        if self.fits and not rehearses:
            self._describe(tokenizer)

    def run(self) -> int:
        """Execute the command; return the exit code."""
        with naming_losses(self.trainer.world_size, self.directory, self._how_to_go_on):
            if self.fits:
                return self._fit()
            if self.config.command == "predict":
                values = self.config.values
                self._predict(values.output, values.output_format, values.top_k)
            else:
                self._score()
            return 0

    @property
    def parameters(self) -> int:
        """Number of trainable parameters, heads included."""
        return sum(each.numel() for each in self.model.parameters() if each.requires_grad)

    @property
    def steps(self) -> float:
        """Optimiser steps of the run; infinite if no number of them ends it."""
        return self.data.total_steps(self.trainer)

    def _make_trainer(self, max_steps: int | None = None) -> Trainer:
        settings = self.config.trainer_arguments()
        if max_steps is not None:
            settings |= {"max_steps": max_steps, "max_epochs": -1}
        if settings["accumulate_grad_batches"] == AUTO:
            settings["accumulate_grad_batches"] = 1  # until the data is read
        if not self.fits:
            return make_trainer(settings, callbacks=self.writers)
        own: list[Callback] = [*self.added]
        place = Path(self.config.values.checkpoint.dirpath or self.directory / "checkpoints")
        saves = settings["enable_checkpointing"] is not False
        own.append(StopOnSignal(place / "last.ckpt" if saves else None))  # save_last's file
        if saves:
            chosen: dict[str, Any] = dict(self.config.values.checkpoint)
            check_file_name(chosen["filename"])
            own.append(BestCheckpoint(**{**chosen, "dirpath": place}))
        given = settings["callbacks"] or []
        settings["callbacks"] = [self.record, *given]  # it claims the directory: before all others
        settings["logger"] = make_loggers(settings["logger"], self.directory, self.config.seed)
        own.append(ConfigLog(self.config.plain))
        idles = len(self.config.request.heads) + bool(self.config.request.objectives) > 1
        return make_trainer(settings, self.directory, [*own, *self.writers], idles)

    def _check_fit(self) -> None:
        """Raise what would stop the run later, before its directory is made."""
        values, model = self.config.values, self.model
        model.replays_passes = values.compile and can_replay(self.trainer)
        if model.replays_passes:
            use_own_stream()
            self.data.filling = Filling(model.named_tasks(), self.data.max_seq_length)
        if values.keep_predictions:
            self.data.predict_validation()
        divides = values.trainer.accumulate_grad_batches == AUTO
        self.memory = choose_parts(self.config, model, self.data, self.trainer)
        if divides:
            self.trainer = self._make_trainer()
        steps = asked_steps(values.max_tokens, values.max_words, self.trainer, self.data)
        if steps is not None:
            self.trainer = self._make_trainer(steps)  # a new one: a Trainer's end stays as it is
        trainer = self.trainer
        done = 0 if model.continued is None else model.continued.steps
        check_end(model.optimizer_config, trainer, done, model.named_tasks(), self.data)
        self.data.check_division(trainer.world_size, trainer.accumulate_grad_batches)
        choose_monitor(values.checkpoint.monitor, model)
        check_early_stopping(trainer, model)
        for each in self.added:
            if (prepare := getattr(each, "prepare", None)) is not None:
                self.facts |= prepare(trainer, self.data) or {}
        model.numerical_guard.policy = values.on_nonfinite
        if values.compile:
            compile_layers(model.encoder)
            compile_losses(model.tasks)

    def _describe(self, tokenizer: Tokenizer) -> None:
        """Give the run's record its content."""
        data, request, values = self.data, self.config.request, self.config.values
        facts = {
            **plugin_facts(request, self.config.plain),
            "command": ["bertlab", "fit", *request.argv],
            "seed": self.config.seed,
            "seeds": asdict(self.config.seeds),
            **machine_facts(self.trainer.strategy.root_device, self.trainer.world_size),
            "precision": str(self.trainer.precision),
            "tokenizer": tokenizer.fingerprint,
            **({} if self.weights is None else {"init_weights": self.weights}),
            "parameters": self.parameters,
            **data.facts(),
            **training_size(self.trainer, data, "max_words" if values.max_words else None),
            **self.facts,
        }
        counts = None if data.token_counts is None else torch.from_numpy(data.token_counts)
        self.record.describe(manifest(facts), tokenizer, counts, data.labels, data.head_labels)

    def _fit(self) -> int:
        """Train, evaluate once more at the end, and print where everything is."""
        path = None if self.checkpoint is None else str(self.checkpoint.path)
        if self.trainer.is_global_zero:
            self._introduce()
        fit = partial(self.trainer.fit, self.model, self.data, ckpt_path=path, weights_only=True)
        with self.record.kept_if_it_begins():
            code = train(fit, self.trainer, self.whole, self._is_saved)
        if code == 0:
            self._finish()
        close_trackers(self.trainer)
        return code

    def _introduce(self) -> None:
        """Print the data report and what is about to run."""
        for title, rows in self.data.report_tables():
            print_table(title, rows)
        size = in_words(self.data.sequences_per_step())
        say(
            f"{self.directory}: {self.parameters:,} parameters, "
            f"{size} sequences a step, seed {self.config.seed}"
        )
        if self.memory is not None:
            say(self.memory.describe(self.data, self.trainer))

    def _is_saved(self) -> bool:
        """Return whether there is a checkpoint to go on from."""
        return self.record.saved_step >= 0 or self.checkpoint is not None

    def _finish(self) -> None:
        """Save and score the last step, if no evaluation fell on it, and print the figures."""
        trainer, model, step = self.trainer, self.model, self.trainer.global_step
        resumed_step = None if self.checkpoint is None else self.checkpoint.global_step
        saved = step in (self.record.saved_step, resumed_step)
        if not saved and self.config.plain["trainer"]["enable_checkpointing"] is not False:
            trainer.save_checkpoint(self.directory / "checkpoints" / "last.ckpt")
        if model.evaluated_step != step:  # after saving: a kill loses no step
            trainer.validate(model, self.data, verbose=False)
        results = held_out_results(trainer, "val")  # trainer.predict() forgets them
        if self.config.values.keep_predictions:
            self._predict(str(self.directory / PREDICTIONS_FILE), "jsonl")
        if not trainer.is_global_zero:
            return
        print_results(results, f"{self.directory}: step {step}")
        if model.heads:
            best = record_best(trainer, model, self.directory)
            if best is not None:
                say(best)
        for warning in self.model.warnings:
            warn(warning)
        if model.warnings:
            write_json(self.directory / DEGENERATE_FILE, model.warnings)
        run_ended(self.directory, results, self.data.report_tables())
        write_json(self.directory / RESULTS_FILE, results)  # the last: the run is whole

    def _score(self) -> None:
        """Score the model on the held-out text, or on the validation or test sets."""
        validates = self.config.command == "validate"
        score = self.trainer.validate if validates else self.trainer.test
        score(self.model, self.data, verbose=False)
        if self.trainer.is_global_zero:
            title = f"{self.config.command} rows" if self.model.heads else "held-out text"
            print_results(held_out_results(self.trainer, "val" if validates else "test"), title)
            for warning in self.model.warnings:
                warn(warning)

    def _predict(self, output: str | None, form: str, top_k: int | None = None) -> None:
        """Print predictions as JSON lines, or write them to a file, while they are made."""
        check_at_least("--top_k", top_k, 1)
        if top_k is not None:
            for task in self.model.named_tasks().values():
                if isinstance(task, TokenPrediction):
                    task.top_k = top_k
        read_from, mask = self.config.values.data.get("input"), self.tokenizer.special.mask
        sink = open_sink(output, form, self.model.head, top_k, read_from, mask)
        (writer,) = self.writers
        with writer.into(sink, self.data, self.model.head):
            self.trainer.predict(self.model, self.data, return_predictions=False)

    def _how_to_go_on(self) -> str:
        """Return how to resume, for the message about a lost process or disk."""
        if not self.fits:
            return ""
        if self._is_saved():
            return f"; {how_to_resume(self.whole)}"
        return " before the first checkpoint"
