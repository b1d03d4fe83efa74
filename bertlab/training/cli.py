"""``BertlabCLI``: Lightning's command line for ``fit``, ``validate``, ``test`` and ``predict``."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI

from bertlab.checkpoints.pretrained import Pretrained, one_head
from bertlab.checkpoints.restore import (
    is_model,
    read_checkpoint,
    read_warm_start,
    use_folder,
    warm_start,
)
from bertlab.checkpoints.run_checkpoint import LAST_FILE
from bertlab.checkpoints.run_directory import (
    DEGENERATE_FILE,
    PREDICTIONS_FILE,
    choose_run_directory,
    machine_facts,
    manifest,
    resumed_run,
)
from bertlab.config.checkpoint_config import check_users_own
from bertlab.config.merge import read_request
from bertlab.config.parser import (
    TRAINER_DEFAULTS,
    add_core_keys,
    add_keys_of_command,
    add_seed_keys,
    data_class,
)
from bertlab.config.request import Request
from bertlab.config.run_config import AUTO, parse_request
from bertlab.data.module import TaskData
from bertlab.data.run_length import asked_steps, training_size
from bertlab.errors import TrainerError, check_at_least, print_table, say, warn
from bertlab.files import write_json
from bertlab.model.build import adapt, build_tasks, check_encoder, compile_layers, compile_losses
from bertlab.model.module import BertModule
from bertlab.model.optimizer import check_end
from bertlab.objectives.changing import in_words
from bertlab.plugins.hooks import first_result, hook_results
from bertlab.plugins.index import where_to_get
from bertlab.training.best_checkpoint import (
    BestCheckpoint,
    check_checkpoints,
    choose_monitor,
    direct_callbacks,
    record_best,
)
from bertlab.training.callbacks import (
    Averages,
    StopOnSignal,
    added_callbacks,
    explain_lost_process,
    how_to_resume,
    train,
)
from bertlab.training.predictions import PredictionWriter, open_sink
from bertlab.training.record import RunRecord, plugin_facts
from bertlab.training.results import held_out_results, print_results
from bertlab.training.same_run import Resumption
from bertlab.training.trainer import (
    build_module,
    choose_tokenizer,
    keep_freed_memory,
    make_loggers,
    make_trainer,
    quiet_lightning,
)


class BertlabCLI(LightningCLI):
    """Parses what a command is asked for, builds trainer, data and module, and runs it.

    Each method of Lightning's that is overridden does its part of that. A checkpoint's
    hyper-parameters never override the config: the config that it stores is read beforehand, as
    data that may come from anywhere (:func:`open_command`).

    Attributes:
        resolved: the config; ``config`` has its typed values.
        directory: of the run that ``fit`` makes or goes on with.
        tokenizer: that encodes its text.
    """

    model: BertModule
    datamodule: TaskData

    def __init__(
        self,
        command: str,
        request: Request,
        checkpoint: Pretrained | None = None,
        warm: Pretrained | None = None,
        seed: int | None = None,
        whole: Path | None = None,
        rehearses: bool = False,
    ) -> None:
        self.command, self.request = command, request
        self.checkpoint, self.warm, self.seed = checkpoint, warm, seed
        self.is_stage, self.whole, self.rehearses = whole is not None, whole or Path(), rehearses
        self.fits = command == "fit"
        self.weights: str | None = None
        self.facts: dict[str, Any] = {}  # that added callbacks have for the manifest
        super().__init__(
            BertModule,
            data_class(request),
            save_config_callback=None,  # the run's record writes it
            trainer_defaults=TRAINER_DEFAULTS,
            parser_kwargs={"exit_on_error": False, "prog": f"bertlab {command}"},
            run=False,  # what runs is what `run` calls
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the seeds."""
        add_seed_keys(parser)

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add Trainer, the named plugins and data."""
        add_core_keys(parser, self.request)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the command's own keys, and those of packages."""
        add_keys_of_command(parser, self.command)

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse the merged config, once."""
        self.resolved = parse_request(self.request, self.command, self.seed, parser)
        self.config = self.resolved.values

    def _parse_ckpt_path(self) -> None:
        """Let no checkpoint override the config, as Lightning's ``hyper_parameters`` would."""

    def _set_seed(self) -> None:
        seed_everything(self.resolved.seeds.weights, workers=True, verbose=False)

    def before_instantiate_classes(self) -> None:
        """Refuse what needs no data to be seen."""
        self.request.check_scored(self.command)
        self.goes_on: Resumption | None = None
        if self.fits and self.checkpoint is not None:
            self.goes_on = Resumption(self.resolved, self.checkpoint)
            self.goes_on.check_config()

    def instantiate_classes(self) -> None:
        """Make directory, data, tasks, trainer and module; what can be wrong is checked early."""
        config, checkpoint, warm = self.resolved, self.checkpoint, self.warm
        self.directory, resumed = Path(), None
        if self.fits:
            given = config.values.run_dir
            resumed = None if checkpoint is None else resumed_run(checkpoint.path, given)
            self.directory = resumed or choose_run_directory(
                given, self.request.run_name, is_stage=self.is_stage
            )
        self.whole = self.whole if self.is_stage else self.directory
        self.record = RunRecord(self.directory, config.plain, resumed is not None, checkpoint)
        predicts = self.command == "predict" or config.values.get("keep_predictions", False)
        self.writers = [PredictionWriter()] if predicts else []
        masks = {"mask_seed": config.seeds.masks} if self.request.objectives else {}
        arguments = {**config.plain["data"], "seed": config.seeds.order, **masks}
        self.datamodule = data_class(self.request)(**arguments)
        tasks = build_tasks(config.plain["model"])
        check_encoder(tasks, config.plain["model"]["encoder"])
        self.added = added_callbacks(self.directory, config.values) if self.fits else []
        self.trainer = self.instantiate_trainer()  # checks its settings before the data is read
        if self.goes_on is not None:
            self.goes_on.check_tokenizer()
        self.tokenizer = tokenizer = choose_tokenizer(checkpoint, warm, self.datamodule, tasks)
        self.datamodule.connect(tokenizer, tasks)
        prints = self.trainer.is_global_zero and not self.rehearses
        if warm is not None and prints and self.fits and not config.plain["model"]["from_scratch"]:
            self.weights = warm.weights_digest()  # before they are let go
        self.model = build_module(config, self.datamodule, tasks, tokenizer, checkpoint, warm)
        if warm is not None and not config.plain["model"]["from_scratch"]:
            for line in warm_start(warm, self.model, self.fits):
                if prints:  # predict keeps standard output for predictions
                    say(line, to_errors=self.command == "predict")
        for start in (checkpoint, warm):
            if start is not None:
                start.release_weights()
        if self.goes_on is not None:
            self.goes_on.check_data(self.datamodule)
        self.datamodule.encode()  # by the head, whose labels are known now

    def after_instantiate_classes(self) -> None:
        """Adapt, check what would stop a run later, and give its record its content."""
        if self.fits:
            adapt(self.model.encoder, self.resolved.plain["model"], self.model.heads)
            self._check_fit()
        if self.fits and not self.rehearses:
            self._describe()

    def run(self) -> int:
        """Execute the command; return the exit code."""
        with explain_lost_process(self.trainer.world_size, self.directory, self._how_to_go_on):
            return int(getattr(self, self.command)())

    @property
    def parameters(self) -> int:
        """Number of trainable parameters, heads included."""
        return sum(each.numel() for each in self.model.parameters() if each.requires_grad)

    @property
    def steps(self) -> float:
        """Optimiser steps of the run; infinite if no number of them ends it."""
        return self.datamodule.total_steps(self.trainer)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:  # noqa: ANN401  as Lightning's
        """Make the Trainer; ``kwargs`` are arguments of it that win over those of the config."""
        settings = self.resolved.trainer_arguments() | kwargs
        if settings["accumulate_grad_batches"] == AUTO:
            settings["accumulate_grad_batches"] = 1  # until the data is read
        if not self.fits:
            return make_trainer(settings, callbacks=self.writers)
        own: list[Callback] = [*self.added]
        place = Path(self.config.checkpoint.dirpath or self.directory / "checkpoints")
        saves = settings["enable_checkpointing"] is not False
        own.append(StopOnSignal(place / LAST_FILE if saves else None))  # save_last's file
        if saves:
            check_checkpoints(self.config.checkpoint)
            chosen = {**self.config.checkpoint, "mode": self._mode, "dirpath": place}
            own.append(BestCheckpoint(**chosen))
        given = settings["callbacks"] or []
        settings["callbacks"] = [self.record, Averages(), *given]  # the first claims the directory
        settings["logger"] = make_loggers(settings["logger"], self.directory, self.added)
        idles = len(self.request.heads) + bool(self.request.objectives) > 1
        return make_trainer(settings, self.directory, [*own, *self.writers], idles)

    @property
    def _mode(self) -> str:
        """``checkpoint.mode``; a stored one may be Lightning's default, which says nothing."""
        stored = self.request.source.get("checkpoint.mode", "") == str(self.request.checkpoint)
        return AUTO if stored else str(self.config.checkpoint.mode)

    def _check_fit(self) -> None:
        """Raise what would stop the run later, before its directory is made."""
        values, model = self.config, self.model
        given = {"module": model, "data": self.datamodule, "trainer": self.trainer}
        if values.compile:
            hook_results("bertlab_accelerate", **given)
        if values.keep_predictions:
            self.datamodule.predict_validation()
        self._divide_steps(given)
        steps = asked_steps(values.max_tokens, values.max_words, self.trainer, self.datamodule)
        if steps is not None:
            # a new one: a Trainer's end stays as it is
            self.trainer = self.instantiate_trainer(max_steps=steps, max_epochs=-1)
        trainer = self.trainer
        done = 0 if model.continued is None else model.continued.steps
        check_end(model.optimizer_config, trainer, done, model.named_tasks(), self.datamodule)
        self.datamodule.check_division(trainer.world_size, trainer.accumulate_grad_batches)
        choose_monitor(values.checkpoint.monitor, model, self._mode)
        given = self.request.values.get("trainer", {}).get("callbacks")
        recorded = self.resolved.plain["trainer"].get("callbacks")
        direct_callbacks(trainer, model, given, recorded)
        for each in self.added:
            if (prepare := getattr(each, "prepare", None)) is not None:
                self.facts |= prepare(trainer, self.datamodule) or {}
        model.evaluations.declared = self.facts.pop("shares", {})
        model.numerical_guard.policy = values.on_nonfinite
        if values.compile:
            compile_layers(model.encoder)
            compile_losses(model.tasks)

    def _divide_steps(self, given: dict[str, Any]) -> None:
        """Let a package see whether a step fits into memory, and divide it where it is to."""
        key = "accumulate_grad_batches"
        chooses = self.config.trainer[key] == AUTO
        parts = first_result("bertlab_step_parts", **given, choose=chooses)
        if not chooses:
            return
        if parts is None:
            raise TrainerError(f"trainer.{key}: found {AUTO}{where_to_get(key, AUTO)}")
        self.resolved.divide_steps(parts)
        self.trainer = self.instantiate_trainer()

    def _describe(self) -> None:
        """Give the run's record its content."""
        data, tokenizer = self.datamodule, self.tokenizer
        facts = {
            **plugin_facts(self.request, self.resolved.plain),
            "command": ["bertlab", "fit", *self.request.argv],
            "seed": self.resolved.seed,
            "seeds": asdict(self.resolved.seeds),
            **machine_facts(self.trainer.strategy.root_device, self.trainer.world_size),
            "precision": str(self.trainer.precision),
            "tokenizer": tokenizer.fingerprint,
            **({} if self.weights is None else {"init_weights": self.weights}),
            "parameters": self.parameters,
            "shares": self.model.evaluations.shares(),
            **data.facts(),
            **training_size(self.trainer, data, "max_words" if self.config.max_words else None),
            **self.facts,
        }
        self.record.describe(manifest(facts), tokenizer, data)

    def fit(self) -> int:
        """Train, evaluate once more at the end, and print where everything is."""
        path = None if self.checkpoint is None else str(self.checkpoint.path)
        if self.trainer.is_global_zero:
            self._introduce()
        fit = partial(
            self.trainer.fit, self.model, self.datamodule, ckpt_path=path, weights_only=True
        )
        with self.record.kept_if_it_begins(path):
            code = train(fit, self.trainer, self.whole, self._is_saved)
        if code == 0:
            self._finish()
        return code

    def _introduce(self) -> None:
        """Print the data report, unless the run has printed it before, and what is about to run."""
        start = 0 if self.goes_on is None else self.goes_on.checkpoint.global_step
        for title, rows in () if start else self.datamodule.report_tables():
            print_table(title, rows)
        size, parts = self.datamodule.sequences_per_step(), self.trainer.accumulate_grad_batches
        step = f"{in_words(size)} sequences a step{f' in {parts} parts' if parts > 1 else ''}"
        if start >= self.steps:
            longer = f"to train longer, start a new run by --model.init_from {self.directory}"
            say(f"{self.directory} ended at step {start}; {longer} --trainer.max_steps N")
        else:
            run = f"{self.directory} continues from step {start}" if start else self.directory
            say(f"{run}: {self.parameters:,} parameters, {step}, seed {self.resolved.seed}")
        optimizer = self.model.optimizer_config
        if optimizer.schedule_steps is None and (warmup := optimizer.warmup_steps) > self.steps:
            told = f"model.optimizer.warmup_steps: found {warmup:g}, of {self.steps:g} steps"
            warn(f"{told}: its rate stays below learning_rate; below 1 it is a share of all steps")

    def _is_saved(self) -> bool:
        """Return whether there is a checkpoint to go on from."""
        return self.record.saved_step >= 0 or self.checkpoint is not None

    def _finish(self) -> None:
        """Save and score the last step, if no evaluation fell on it, and print the figures."""
        trainer, model, step = self.trainer, self.model, self.trainer.global_step
        begun, last = self.checkpoint, self.directory / "checkpoints" / LAST_FILE
        # a kill may fall between a step's own file, which this run then began from, and last.ckpt
        begun_step = begun.global_step if begun is not None and begun.path == last else None
        is_new = step not in (self.record.saved_step, begun_step)
        saves = self.resolved.plain["trainer"]["enable_checkpointing"] is not False
        if is_new and saves:
            trainer.save_checkpoint(last)
        if model.evaluated_step != step:  # after saving: a kill loses no step
            before, model.tunes = [each.clone() for each in model.buffers()], True
            trainer.validate(model, self.datamodule, verbose=False)
            model.tunes = False
            if saves and not all(a.equal(b) for a, b in zip(before, model.buffers(), strict=True)):
                trainer.save_checkpoint(last)
        results = held_out_results(trainer, "val")  # trainer.predict() forgets them
        if self.config.keep_predictions:
            self._predict(str(self.directory / PREDICTIONS_FILE), "jsonl")
        if not trainer.is_global_zero:
            return
        print_results(results, f"{self.directory}: step {step}", model.evaluations.shares())
        if (best := record_best(trainer, model, self.directory)) is not None:
            say(best)
        for warning in self.model.warnings:
            warn(warning)
        if model.warnings:
            write_json(self.directory / DEGENERATE_FILE, model.warnings)
        self.record.finish(results, self.datamodule.report_tables())

    def validate(self) -> int:
        """Score the model on the held-out text, or on the validation sets."""
        self.trainer.validate(self.model, self.datamodule, verbose=False)
        return self._print_scores("val")

    def test(self) -> int:
        """Score the model on the test sets."""
        self.trainer.test(self.model, self.datamodule, verbose=False)
        return self._print_scores("test")

    def predict(self) -> int:
        """Predict for new text or rows."""
        self._predict(self.config.output, self.config.output_format, self.config.top_k)
        return self.writers[0].exit_code

    def _print_scores(self, split: str) -> int:
        if self.trainer.is_global_zero:
            column, rows = ("test", "test") if split == "test" else ("held-out", "validation")
            title = f"{rows} rows" if self.model.heads else "held-out text"
            results = held_out_results(self.trainer, split)
            print_results(results, title, self.model.evaluations.shares(), column)
            for warning in self.model.warnings:
                warn(warning)
        return 0

    def _predict(self, output: str | None, form: str, top_k: int | None = None) -> None:
        """Print predictions as JSON lines, or write them to a file, while they are made."""
        check_at_least("--top_k", top_k, 1)
        if top_k is not None:
            for task in self.model.named_tasks().values():
                if hasattr(task, "top_k"):
                    setattr(task, "top_k", top_k)  # noqa: B010  of a class of any package
        read_from, mask = self.config.data.get("input"), self.tokenizer.special.mask
        sink = open_sink(output, form, self.model.head, top_k, read_from, mask)
        with self.writers[0].into(sink, self.datamodule, self.model.head):
            self.trainer.predict(self.model, self.datamodule, return_predictions=False)
        if (rows := self.datamodule.input_rows) is not None:
            rows.warn_of_cut()

    def _how_to_go_on(self) -> str:
        """Return how to resume, for the message about a lost process or disk."""
        if self.fits and self._is_saved():
            return f"; {how_to_resume(self.whole)}"
        return " before the first checkpoint" if self.fits else ""


def open_command(command: str, request: Request, whole: Path | None = None) -> BertlabCLI:
    """Build the trainer, data and module of a command."""
    quiet_lightning()
    keep_freed_memory()
    for line in request.left_out if command == "fit" else ():
        warn(line)
    if command != "fit" and request.ckpt_path is not None and is_model(request.ckpt_path):
        request = read_request(use_folder(request))
    request.check_weights(command)
    checkpoint = read_checkpoint(request, command) if request.ckpt_path else None
    if checkpoint is not None and (command == "predict" or request.one_head is not None):
        checkpoint = one_head(checkpoint, request.one_head)
    warm = read_warm_start(request) if checkpoint is None else None  # a checkpoint has all in it
    if checkpoint is not None and not request.files:
        path = checkpoint.path
        assert path is not None
        left_out = [key for key in checkpoint.left_out if not request.is_argument(key)]
        check_users_own(left_out, path, command)
        request = read_request(request.argv, checkpoint.config, str(path), path)
    start = warm if checkpoint is None else checkpoint
    if start is not None and request.init_from is not None:
        request.take_sizes(start.encoder_config)
    resumed = None if checkpoint is None else checkpoint.config
    seed = None if resumed is None else resumed["seed_everything"]
    return BertlabCLI(command, request, checkpoint, warm, seed, whole)
