"""What ``fit``, ``validate``, ``test`` and ``predict`` do with all that the command line built."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bertlab.checkpoints.run_directory import COMPLAINTS, PREDICTIONS, RESULTS
from bertlab.console import print_table
from bertlab.files import write_json
from bertlab.training.callbacks.best_checkpoint import record_best
from bertlab.training.exit import how_to_resume, train
from bertlab.training.predictions import open_sink, write_predictions
from bertlab.training.results import held_out_results, print_results

if TYPE_CHECKING:
    from bertlab.training.run import TrainingCLI


def fit(cli: "TrainingCLI") -> int:
    """Train, evaluate once more at the end, and print where everything is."""
    path = None if cli.checkpoint is None else str(cli.checkpoint.path)
    if cli.trainer.is_global_zero:
        _introduce(cli)
    training = partial(
        cli.trainer.fit, cli.model, cli.datamodule, ckpt_path=path, weights_only=True
    )
    code = train(training, cli.trainer, cli.directory, cli.is_saved)
    if code == 0:
        _finish(cli)
    return code


def score(cli: "TrainingCLI") -> int:
    """Score the model on the held-out text, or on the validation or test sets."""
    run = cli.trainer.validate if cli.command == "validate" else cli.trainer.test
    run(cli.model, cli.datamodule, verbose=False)
    if cli.trainer.is_global_zero:
        stage = "val" if cli.command == "validate" else "test"
        title = "held-out text" if cli.plan.head is None else f"{cli.command} rows"
        print_results(held_out_results(cli.trainer, stage), title)
        _complain(cli)
    return 0


def predict(cli: "TrainingCLI") -> int:
    """Print predictions as JSON lines, or write them to ``--output``, while they are made."""
    sink = open_sink(cli.config.output, cli.config.output_format, cli.model.head)
    write_predictions(cli.trainer, cli.model, cli.datamodule, sink)
    return 0


def how_to_go_on(cli: "TrainingCLI") -> str:
    """Return what is said to a user whose command lost a process or its disk."""
    if cli.command != "fit":
        return ""
    if not cli.is_saved():
        return " before the first checkpoint"
    return f"; {how_to_resume(cli.directory)}"


def _complain(cli: "TrainingCLI") -> None:
    for complaint in cli.model.complaints:
        sys.stderr.write(f"warning: {complaint}\n")


def _finish(cli: "TrainingCLI") -> None:
    """Save and score the last step, if no evaluation fell on it, and print the figures."""
    step = cli.trainer.global_step
    resumed_step = None if cli.checkpoint is None else cli.checkpoint.global_step
    saved = step in (cli.record.saved_step, resumed_step)
    if not saved and cli.resolved["trainer"]["enable_checkpointing"] is not False:
        cli.trainer.save_checkpoint(cli.directory / "checkpoints" / "last.ckpt")
    if cli.model.evaluated_step != step:
        if step in cli.model.history:  # logged before the run was resumed
            cli.trainer.loggers = []
        cli.trainer.validate(cli.model, cli.datamodule, verbose=False)
    results = held_out_results(cli.trainer, "val")
    if cli.config.keep_predictions:
        _keep_predictions(cli)
    if cli.trainer.is_global_zero:
        print_results(results, f"{cli.directory}: step {step}")
        if cli.plan.head is not None:
            best = record_best(cli.trainer, cli.model, cli.directory)
            if best is not None:
                sys.stdout.write(f"{best}\n")
        _complain(cli)
        if cli.model.complaints:
            write_json(cli.directory / COMPLAINTS, cli.model.complaints)
        write_json(cli.directory / RESULTS, results)  # the last: the run is whole


def _keep_predictions(cli: "TrainingCLI") -> None:
    """Write what the last step predicts for the validation rows."""
    cli.datamodule.predict_validation()
    sink = open_sink(str(cli.directory / PREDICTIONS), "jsonl", cli.model.head)
    write_predictions(cli.trainer, cli.model, cli.datamodule, sink)


def _introduce(cli: "TrainingCLI") -> None:
    """Print the data report and what is about to run."""
    for title, rows in cli.datamodule.report_tables():
        print_table(title, rows)
    sys.stdout.write(
        f"{cli.directory}: {cli.parameters:,} parameters, "
        f"{cli.datamodule.sequences_per_step()} sequences a step, "
        f"seed {cli.config.seed_everything}\n"
    )


COMMANDS: dict[str, Callable[["TrainingCLI"], int]] = {
    "fit": fit,
    "validate": score,
    "test": score,
    "predict": predict,
}
