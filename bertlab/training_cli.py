"""``bertlab fit``, ``validate`` and ``predict``: LightningCLI with plugins named in the config."""

import math
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from bertlab.arguments import parse_arguments, parse_config
from bertlab.callbacks.run_record import RunRecord
from bertlab.checkpoints.run_checkpoint import BEST
from bertlab.checkpoints.warm_start import apply_warm_start
from bertlab.config_files import Composition, Config, compose, split_arguments
from bertlab.data.labelled_data import LabelledData
from bertlab.data.pretraining_data import PretrainingData
from bertlab.data.submission_formats import open_submission
from bertlab.data.task_data import TaskData
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.errors import ConfigError, nearest
from bertlab.heads.base import Head
from bertlab.hooks import run_callbacks
from bertlab.model_building import build_encoder, build_tasks, check_lengths
from bertlab.module import BertModule, check_tasks, metric_name
from bertlab.optimization import AdamWConfig, check_schedule
from bertlab.plugins import installed
from bertlab.predictions import JsonLines, PredictionSink, PredictionWriter
from bertlab.printed_tables import print_table
from bertlab.repeated_fit import fit_seeds
from bertlab.results import held_out_results, print_results
from bertlab.run_directory import MANIFEST, choose_run_directory, manifest, write_json
from bertlab.starting_point import StartingPoint, find_starting_point
from bertlab.tasks import Task, TaskContext
from bertlab.trainer import make_trainer, quiet_lightning
from bertlab.training_parser import TRAINER_DEFAULTS, add_model, add_run, add_trainer


def main(command: str, argv: list[str]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; return the exit code."""
    quiet_lightning()
    if command == "fit" and any(key == "--seeds" for key, _, _ in split_arguments(argv)):
        return fit_seeds(argv, lambda arguments: main(command, arguments))
    plan = compose(argv)
    helping = "-h" in argv or "--help" in argv
    if command != "fit" and plan.ckpt_path is None and plan.init_from is None and not helping:
        raise ConfigError(
            f"{command}: no weights; expected --ckpt_path with a run or checkpoint, or "
            "--model.init_from with a Hugging Face model"
        )
    start = find_starting_point(plan, command)
    if start.checkpoint is not None and not plan.files:
        plan = compose(argv, base=start.checkpoint.config)
    cli = TrainingCLI(command, plan, start)
    run = {"fit": cli.fit, "validate": cli.score, "test": cli.score, "predict": cli.predict}
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
        self.data_class = PretrainingData if plan.head is None else LabelledData
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
        add_model(parser, self.plan, self.start.warm)
        parser.add_class_arguments(self.data_class, "data", instantiate=False, skip={"seed"})

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what belongs to the run as a whole."""
        add_run(parser, self.command)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401
        """Parse each config file, then the arguments that override them."""
        if "-h" in args or "--help" in args:
            parser.print_help()
            raise SystemExit(0)
        config = None
        for path, content in self.plan.files:
            known = {key: value for key, value in content.items() if _belongs(key, parser)}
            config = parse_config(parser, known, str(path), config)
        self.config = parse_arguments(parser, args, config)

    def _set_seed(self) -> None:
        """Seed everything; without a seed in the config, draw one and record it."""
        seed = self.config.seed_everything
        if seed is True and self.checkpoint is not None:
            seed = self.checkpoint.config["seed_everything"]
        elif seed is True:
            seed = _fresh_seed()
        if not 0 <= seed < 2**32:
            raise ConfigError(f"seed_everything: found {seed}, expected 0 to 4294967295")
        self.config.seed_everything = int(seed)
        seed_everything(self.config.seed_everything, workers=True, verbose=False)

    def instantiate_classes(self) -> None:
        """Make data and tasks, the trainer, which checks its settings, and then the module."""
        self.config_init = self.parser.instantiate_classes(self.config)
        self.resolved = self._resolve()
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
            _say(f"initialised from {self.start.warm.source}: {len(report.loaded)} tensors")
            if report.newly_initialized:
                _say(f"newly initialised: {', '.join(report.newly_initialized)}")
            for note in report.notes:
                _say(f"note: {note}")
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
        return BertModule(encoder, tasks, context, optimizer, self.datamodule.evaluation_rows())

    def _prepare(self) -> None:
        """Read the data, which may take long; predictions bring their own."""
        if self.command != "predict":
            self.datamodule.prepare(self.command)

    def _check_fit(self) -> None:
        """Find what would stop the run, before its directory is made."""
        trainer = self.trainer
        endless = trainer.max_steps == -1 and trainer.max_epochs in (None, -1)
        check_schedule(self.model.optimizer_config, endless)
        self.datamodule.check_division(trainer.world_size, trainer.accumulate_grad_batches)
        self._choose_best_by()

    def fit(self) -> int:
        """Train, evaluate once more at the end, and print where everything is."""
        path = None if self.checkpoint is None else str(self.checkpoint.path)
        if self.trainer.is_global_zero:
            self._introduce()
        try:
            self.trainer.fit(self.model, self.datamodule, ckpt_path=path, weights_only=True)
        except SystemExit:  # what Lightning makes of Ctrl-C
            if not self.trainer.interrupted:
                raise
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _say(f"interrupted; go on with: bertlab fit --ckpt_path {self.directory}")
            return 130
        self._finish()
        return 0

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
        heads = [task for task in self.model.named_tasks().values() if isinstance(task, Head)]
        head = heads[0] if heads else None
        with PredictionWriter(self._sink(head), self.datamodule, head) as writer:
            self.trainer.callbacks.append(writer)  # type: ignore[attr-defined]
            self.trainer.predict(self.model, self.datamodule, return_predictions=False)
        return 0

    def _sink(self, head: Head | None) -> PredictionSink:
        output, form = self.config.output, self.config.output_format
        if form == "jsonl":
            columns = () if head is None else head.columns
            return JsonLines(output, [column.name for column in columns if column.is_truth])
        if output is None:
            raise ConfigError(f"--output_format {form}: expected --output with the file to write")
        return open_submission(form, output)

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
            self.trainer.validate(self.model, self.datamodule, verbose=False)
        if self.trainer.is_global_zero:
            results = held_out_results(self.trainer, "val")
            write_json(self.directory / "results.json", results)
            print_results(results, f"{self.directory}: step {step}")
            if self.plan.head is not None:
                self._record_best()
            self._complain()

    def _record_best(self) -> None:
        """Name the best checkpoint in ``best.json``, with its metrics."""
        chosen = self.trainer.checkpoint_callback
        if not isinstance(chosen, ModelCheckpoint) or not chosen.best_model_path:
            return
        monitor, history = chosen.monitor or "", self.model.history
        better = min if chosen.mode == "min" else max
        scores = {
            step: values[monitor]
            for step, values in history.items()
            if not math.isnan(values.get(monitor, math.nan))
        }
        if not scores:
            return
        step = better(scores, key=lambda each: scores[each])
        content = {
            "monitor": monitor,
            "step": step,
            "checkpoint": Path(chosen.best_model_path).name,
            "results": {key.removeprefix("val/"): value for key, value in history[step].items()},
        }
        write_json(self.directory / BEST, content)
        _say(f"best {monitor}: {scores[step]:.4f} at step {step}, {chosen.best_model_path}")

    def _introduce(self) -> None:
        """Print the data report and what is about to run."""
        for title, rows in self.datamodule.report_tables():
            print_table(title, rows)
        _say(
            f"{self.directory}: {self.parameters:,} parameters, "
            f"{self.datamodule.sequences_per_step()} sequences a step, "
            f"seed {self.config.seed_everything}"
        )

    def _resolve(self) -> Config:
        """Return the config as plain data, with every plugin named."""
        dumped = self.parser.dump(self.config, skip_none=False, skip_validation=True)
        config: Config = yaml.safe_load(dumped)
        if self.plan.head is None:
            given = config["model"].get("objectives") or {}
            config["model"]["objectives"] = {
                name: given.get(name) or {} for name in self.plan.objectives
            }
        else:
            config["model"]["head"]["name"] = self.plan.head
        config["model"]["encoder"]["name"] = self.plan.encoder
        for key in ("run_dir", "seeds", "ckpt_path", "config", "output", "output_format"):
            config.pop(key, None)
        return config

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
        if self.checkpoint is None or self.config.run_dir is not None:
            return None
        run = self.checkpoint.path.parent.parent
        return run if (run / MANIFEST).is_file() else None

    def _make_trainer(self) -> Trainer:
        settings = dict(self.config_init.trainer)
        if self.command != "fit":
            return make_trainer(settings)
        callbacks = run_callbacks(self.directory)
        if settings["enable_checkpointing"] is not False:
            callbacks.append(ModelCheckpoint(**self._checkpointing(monitor=None)))
        return make_trainer(settings, self.directory, callbacks)

    def _checkpointing(self, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  config values
        settings = {**dict(self.config.checkpoint), **changes}
        settings["dirpath"] = settings["dirpath"] or str(self.directory / "checkpoints")
        return settings

    def _choose_best_by(self) -> None:
        """Let the best checkpoint be chosen by the metric that the config or the head names."""
        monitor, mode = self.config.checkpoint.monitor, self.config.checkpoint.mode
        if monitor == "auto":
            monitor, mode = self._best()
        names = self.model.metric_names()
        if monitor not in (None, *names):
            raise ConfigError(
                f"checkpoint.monitor: found {monitor!r}{nearest(monitor, names)} "
                f"(there are: {', '.join(names)})"
            )
        callbacks: list[Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
        for place, callback in enumerate(callbacks):
            if type(callback) is ModelCheckpoint:
                settings = self._checkpointing(monitor=monitor, mode=mode)
                callbacks[place] = ModelCheckpoint(**settings)

    def _best(self) -> tuple[str, str]:
        """Return the metric that a head's best checkpoint is chosen by, and its better end."""
        for name, task in self.model.named_tasks().items():
            if isinstance(task, Head):
                metric, mode = task.monitor
                return metric_name("val", name, self.datamodule.first_evaluation, metric), mode
        return "val/loss", "min"

    def _record(self, tokenizer: WordPieceTokenizer) -> RunRecord:
        named = [installed("encoder")[self.plan.encoder]]
        named += [installed("objective")[name] for name in self.plan.objectives]
        named += [] if self.plan.head is None else [installed("head")[self.plan.head]]
        data = self.datamodule
        facts = {
            "seed": self.config.seed_everything,
            "tokenizer": tokenizer.fingerprint,
            "parameters": self.parameters,
            **data.facts(),
        }
        plugins = {plugin.package: plugin.version for plugin in named}
        counts = None if data.token_counts is None else torch.from_numpy(data.token_counts)
        record = manifest(plugins, facts)
        goes_on = self.directory == self._resumed_run()
        return RunRecord(
            self.directory, self.resolved, record, tokenizer, counts, data.labels, goes_on
        )


def _belongs(key: str, parser: LightningArgumentParser) -> bool:
    """Whether a config's section is for this command: a fit config also serves validate."""
    if key in ("checkpoint", "run_dir"):
        return any(action.dest.split(".")[0] == key for action in parser._actions)
    return True


def _fresh_seed() -> int:
    """Draw a seed; processes that Lightning starts inherit the first one's.

    Raises:
        ConfigError: if something else started several processes, which would draw different ones.
    """
    inherited = os.environ.get("PL_GLOBAL_SEED") if os.environ.get("LOCAL_RANK") else None
    if inherited:
        return int(inherited)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        raise ConfigError("seed_everything: give one where torchrun or SLURM starts the processes")
    return secrets.randbelow(2**31)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
