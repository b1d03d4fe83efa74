"""``bertlab fit``, ``validate`` and ``predict``: LightningCLI with plugins named in the config."""

import os
import secrets
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from rich.console import Console

from bertlab.arguments import parse_arguments, parse_config
from bertlab.callbacks.run_record import RunRecord
from bertlab.checkpoints.run_checkpoint import (
    RunCheckpoint,
    find_checkpoint,
    read_run_checkpoint,
)
from bertlab.checkpoints.warm_start import WarmStart, apply_warm_start, read_warm_start
from bertlab.config_files import Composition, Config, compose, differences
from bertlab.data.data_report import render
from bertlab.data.pretraining_data import PretrainingData
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.errors import CheckpointError, ConfigError, TokenizerError, nearest
from bertlab.hooks import run_callbacks
from bertlab.model_building import (
    build_encoder,
    build_objectives,
    check_lengths,
    restore_module,
)
from bertlab.module import BertModule, check_tasks
from bertlab.optimization import AdamWConfig, check_schedule
from bertlab.plugins import installed
from bertlab.predictions import write_predictions
from bertlab.results import held_out_results, print_results
from bertlab.run_directory import MANIFEST, choose_run_directory, manifest, write_json
from bertlab.tasks import Objective, TaskContext
from bertlab.trainer import make_trainer, quiet_lightning
from bertlab.training_parser import TRAINER_DEFAULTS, add_model, add_run, add_trainer


def main(command: str, argv: list[str]) -> int:
    """Run ``fit``, ``validate`` or ``predict``; return the exit code."""
    quiet_lightning()
    plan = compose(argv)
    helping = "-h" in argv or "--help" in argv
    if command != "fit" and plan.ckpt_path is None and plan.init_from is None and not helping:
        raise ConfigError(
            f"{command}: no weights; expected --ckpt_path with a run or checkpoint, or "
            "--model.init_from with a Hugging Face model"
        )
    checkpoint = _read_checkpoint(plan.ckpt_path)
    if checkpoint is not None and not plan.files:
        plan = compose(argv, base=checkpoint.config)
    cli = TrainingCLI(command, plan, checkpoint)
    return {"fit": cli.fit, "validate": cli.validate, "predict": cli.predict}[command]()


class TrainingCLI(LightningCLI):
    """Builds trainer, data and module from a composition of config files and arguments.

    Args:
        command: ``fit``, ``validate`` or ``predict``.
        plan: config files, arguments, and the plugins that they name.
        checkpoint: of ``--ckpt_path``, if given.
    """

    model: BertModule
    datamodule: PretrainingData
    trainer: Trainer

    def __init__(self, command: str, plan: Composition, checkpoint: RunCheckpoint | None) -> None:
        self.command = command
        self.plan = plan
        self.checkpoint = checkpoint
        self.start = _read_start(plan, checkpoint)
        super().__init__(
            BertModule,
            PretrainingData,
            save_config_callback=None,
            trainer_defaults=TRAINER_DEFAULTS,
            parser_kwargs={"exit_on_error": False, "prog": f"bertlab {command}"},
            args=plan.arguments,
            run=False,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the trainer, the named encoder and objectives, the optimiser and the data."""
        add_trainer(parser)
        add_model(parser, self.plan, self.start)
        parser.add_class_arguments(PretrainingData, "data", instantiate=False, skip={"seed"})

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
        """Make the trainer, which checks its settings, then the data, then the module."""
        self.config_init = self.parser.instantiate_classes(self.config)
        self.resolved = self._resolve()
        self.directory = self._choose_directory()
        self.trainer = self._make_trainer()
        self.datamodule = PretrainingData(**self.resolved["data"], seed=self.config.seed_everything)
        objectives = build_objectives(self.resolved["model"]["objectives"])
        tokenizer = self._choose_tokenizer()
        self.datamodule.connect(tokenizer, objectives)
        if self.checkpoint is not None and self.command != "fit":
            self.model = self._restore(self.checkpoint, objectives)
            check_lengths(self.datamodule.max_seq_length, self.model.encoder)
        else:
            encoder = build_encoder(self.resolved["model"]["encoder"], tokenizer.vocab_size)
            check_lengths(self.datamodule.max_seq_length, encoder)
            check_tasks(objectives, encoder)
            optimizer = AdamWConfig(**self.resolved["model"]["optimizer"])
            counts = None
            if self.command != "predict":
                self.datamodule.prepare()  # may take long: what can be wrong is checked before it
                counts = self.datamodule.token_counts
            context = TaskContext(encoder, tokenizer, counts)
            self.model = BertModule(encoder, objectives, context, optimizer)
        if self.start is not None:
            report = apply_warm_start(self.start, self.model)
            _say(f"initialised from {self.start.source}: {len(report.loaded)} tensors")
            if report.newly_initialized:
                _say(f"newly initialised: {', '.join(report.newly_initialized)}")
        if self.command == "fit":
            self._check_fit()
            self.record = self._record(tokenizer)
            self.trainer.callbacks.insert(0, self.record)  # type: ignore[attr-defined]

    def _check_fit(self) -> None:
        """Find what would stop the run, before its directory is made."""
        trainer = self.trainer
        endless = trainer.max_steps == -1 and trainer.max_epochs in (None, -1)
        check_schedule(self.model.optimizer_config, endless)
        self.datamodule.check_division(trainer.world_size, trainer.accumulate_grad_batches)
        monitor = self.config.checkpoint.monitor
        names = self.model.metric_names()
        if monitor is not None and monitor not in names:
            raise ConfigError(
                f"checkpoint.monitor: found {monitor!r}{nearest(monitor, names)} "
                f"(there are: {', '.join(names)})"
            )

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

    def validate(self) -> int:
        """Score the checkpoint on the held-out text."""
        self.trainer.validate(self.model, self.datamodule, verbose=False)
        if self.trainer.is_global_zero:
            print_results(held_out_results(self.trainer), "held-out text")
        return 0

    def predict(self) -> int:
        """Print predictions as JSON lines, or write them to ``--output``."""
        batches = self.trainer.predict(self.model, self.datamodule)
        assert batches is not None
        predictions = [row for batch in batches for row in batch]
        data = self.datamodule
        write_predictions(predictions, data.text or [], data.text_pair, self.config.output)
        return 0

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
            results = held_out_results(self.trainer)
            write_json(self.directory / "results.json", results)
            print_results(results, f"{self.directory}: step {step}")

    def _introduce(self) -> None:
        """Print the data report and what is about to run."""
        data = self.datamodule
        assert data.store is not None
        reports = data.reports
        rows = [row for report in reports for row in report.rows()]
        Console().print(render("training data", rows))
        _say(
            f"{self.directory}: {self.parameters:,} parameters, "
            f"{data.sequences_per_step()} sequences a step, seed {self.config.seed_everything}"
        )

    def _resolve(self) -> Config:
        """Return the config as plain data, with every plugin named."""
        dumped = self.parser.dump(self.config, skip_none=False, skip_validation=True)
        config: Config = yaml.safe_load(dumped)
        given = config["model"].get("objectives") or {}
        config["model"]["objectives"] = {
            name: given.get(name) or {} for name in self.plan.objectives
        }
        config["model"]["encoder"]["name"] = self.plan.encoder
        for key in ("run_dir", "ckpt_path", "config", "output"):
            config.pop(key, None)
        return config

    @property
    def parameters(self) -> int:
        """Number of trainable parameters, heads included."""
        return sum(each.numel() for each in self.model.parameters() if each.requires_grad)

    def _choose_directory(self) -> Path:
        if self.command != "fit":
            return Path()
        requested = self.config.run_dir
        if self.checkpoint is not None and requested is None:
            run = self.checkpoint.path.parent.parent
            if (run / MANIFEST).is_file():
                return run
        named = [path.stem for path, _ in self.plan.files]
        return choose_run_directory(requested, named[-1] if named else "run")

    def _make_trainer(self) -> Trainer:
        settings = dict(self.config_init.trainer)
        if self.command != "fit":
            return make_trainer(settings)
        callbacks = run_callbacks(self.directory)
        if settings["enable_checkpointing"] is not False:
            checkpoint = dict(self.config.checkpoint)
            checkpoint["dirpath"] = checkpoint["dirpath"] or str(self.directory / "checkpoints")
            callbacks.append(ModelCheckpoint(**checkpoint))
        return make_trainer(settings, self.directory, callbacks)

    def _choose_tokenizer(self) -> WordPieceTokenizer:
        given = self.datamodule.tokenizer_path
        if self.checkpoint is not None:
            return self.checkpoint.tokenizer
        if self.start is None or self.start.tokenizer is None:
            tokenizer = self.datamodule.load_tokenizer()
        else:
            tokenizer = self.start.tokenizer
            if given is not None:
                asked = WordPieceTokenizer.load(Path(given))
                if asked.fingerprint != tokenizer.fingerprint:
                    raise TokenizerError(
                        f"data.tokenizer: {given} is not the tokenizer that {self.start.source} "
                        "was trained with; leave data.tokenizer out to use that one"
                    )
        if self.start is not None and tokenizer.vocab_size != self.start.vocab_size:
            raise TokenizerError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the encoder of "
                f"{self.start.source} {self.start.vocab_size}; give its own as data.tokenizer"
            )
        return tokenizer

    def _restore(self, checkpoint: RunCheckpoint, objectives: dict[str, Objective]) -> BertModule:
        changed = differences(_structure(self.resolved), _structure(checkpoint.config))
        if changed:
            raise CheckpointError(
                f"{checkpoint.path}: the config describes another model (here, there):\n  "
                + "\n  ".join(changed)
            )
        return restore_module(checkpoint, objectives)

    def _record(self, tokenizer: WordPieceTokenizer) -> RunRecord:
        named = [installed("encoder")[self.plan.encoder]]
        named += [installed("objective")[name] for name in self.plan.objectives]
        assert self.datamodule.store is not None
        facts = {
            "seed": self.config.seed_everything,
            "tokenizer": tokenizer.fingerprint,
            "corpus": self.datamodule.store.metadata.corpus_fingerprint,
            "parameters": self.parameters,
            "data": {type(report).__name__: asdict(report) for report in self.datamodule.reports},
        }
        plugins = {plugin.package: plugin.version for plugin in named}
        counts = torch.from_numpy(self.datamodule.token_counts)
        return RunRecord(self.directory, self.resolved, manifest(plugins, facts), tokenizer, counts)


def _structure(config: Config) -> Config:
    """Return what decides the tensors of a model."""
    model = config["model"]
    return {"encoder": model["encoder"], "objectives": dict.fromkeys(model["objectives"], "on")}


def _belongs(key: str, parser: LightningArgumentParser) -> bool:
    """Whether a config's section is for this command: a fit config also serves validate."""
    if key in ("checkpoint", "run_dir"):
        return any(action.dest.split(".")[0] == key for action in parser._actions)
    return True


def _read_checkpoint(ckpt_path: str | None) -> RunCheckpoint | None:
    if ckpt_path is None:
        return None
    file = find_checkpoint(ckpt_path)
    if file is None:
        raise CheckpointError(f"--ckpt_path: {ckpt_path}: no such run or checkpoint")
    return read_run_checkpoint(file)


def _read_start(plan: Composition, checkpoint: RunCheckpoint | None) -> WarmStart | None:
    if plan.init_from is None or checkpoint is not None:
        return None
    return read_warm_start(plan.init_from)


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
