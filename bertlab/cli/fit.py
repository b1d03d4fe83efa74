"""``bertlab fit``, ``validate``, ``test`` and ``predict``; their short help needs no torch."""

from collections.abc import Iterator, Mapping, Sequence

from bertlab.config.merge import read_request
from bertlab.config.request import Request
from bertlab.config.shipped import offered_names
from bertlab.config.yaml_files import yaml_inline
from bertlab.errors import CommandError, say
from bertlab.plugins.hooks import opened_by_package
from bertlab.plugins.index import missing_package

# of keys below data, for predict
_SHORT = ("--text", "--text_pair", "--input", "--input_format")
_PURPOSE = {
    "fit": "Train from a config. Any key of it can be given on the command line, where it wins.",
    "validate": "Score a checkpoint on held-out text or validation rows.",
    "test": "Score a fine-tuned checkpoint on test rows.",
    "predict": "Predict on new text or rows. All columns of the rows come back.",
}
# the keys that most runs give, of text (objectives) or of rows (a head)
COMMON = {
    "fit": {
        "model.init_from": "start from a run, a Hugging Face folder or a hub name",
        "data.corpus": "pre-training: text files, a folder, hf:NAME, python-english",
        "data.source": "fine-tuning: a file of rows, a folder of splits, hf:NAME",
        "data.batch_size": "sequences (rows) in a step, over all devices",
        "data.max_seq_length": "tokens of the longest sequence",
        "model.optimizer.learning_rate": "highest learning rate",
        "trainer.max_steps": "end after so many steps",
        "trainer.max_epochs": "or after so many passes over the data",
        "trainer.accumulate_grad_batches": "parts of a step, in turn: less memory; or auto",
        "trainer.precision": "bf16-mixed on GPUs that have it",
        "trainer.devices": "how many devices; all of them if not given",
        "trainer.logger": "wandb or mlflow beside the files of the run",
        "seed_everything": "seed; drawn and recorded if not given",
        "seeds": "repeat with seeds 1 … N; mean and deviation",
        "run_dir": "directory of the run; runs/NAME-OF-THE-CONFIG if not given",
        "ckpt_path": "a run that goes on; last: this config's",
    },
    "validate": {"ckpt_path": "run, checkpoint or Hugging Face folder"},
    "test": {
        "ckpt_path": "run, checkpoint or Hugging Face folder",
        "data.test": "a file of rows, or a split of data.source",
    },
    "predict": {
        "ckpt_path": "run, checkpoint or Hugging Face folder",
        "text": "a text, perhaps with [MASK]",
        "text_pair": "a second text, where two are read",
        "input": "a file of texts or rows; - is standard input",
        "output": "file to write: .csv, .tsv, .parquet, else JSON lines",
        "head": "which one predicts, of a run with several (model.heads)",
        "top_k": "classes, answers or fillers of each row",
        "data.columns": "the file's column by the head's: '{text: review}'",
    },
}


def main(command: str, argv: list[str]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; return the exit code."""
    argv = with_config_options(argv)
    if command == "predict":
        # --input=x is short for --data.input=x
        argv = [f"--data.{each[2:]}" if each.split("=")[0] in _SHORT else each for each in argv]
    request = read_request(argv)
    if request.helps == "short":
        say(short_help(command, request))
        return 0
    if request.prints is not None:
        return print_config(command, request)
    if (opened := opened_by_package(command, request)) is None:
        from bertlab.training.cli import open_command  # noqa: PLC0415  torch, not for --help

        opened = open_command(command, request)
    return opened.run()


def with_config_options(argv: Sequence[str]) -> list[str]:
    """Return arguments with ``--config`` before each config that stands in front of the options.

    ``quickstart --trainer.max_steps 3`` becomes ``--config quickstart --trainer.max_steps 3``.
    """
    first_option = next((i for i, each in enumerate(argv) if each.startswith("-")), len(argv))
    named = [part for each in argv[:first_option] for part in ("--config", each)]
    return [*named, *argv[first_option:]]


def print_config(command: str, request: Request) -> int:
    """Print the config that arguments with ``--print_config`` stand for; run nothing."""
    from bertlab.checkpoints.restore import read_warm_start  # noqa: PLC0415  torch, rare
    from bertlab.config.run_config import OPTION, printed_config, read_forms  # noqa: PLC0415

    forms = read_forms(request.prints or "")
    if command != "fit" or request.ckpt_path is not None:
        raise CommandError(
            f"{OPTION}: expected bertlab fit without --ckpt_path; the config of a run that was "
            "begun is config.yaml in its directory"
        )
    if (warm := read_warm_start(request)) is not None:
        request.take_sizes(warm.encoder_config)
    say(printed_config(request, forms))
    return 0


def short_help(command: str, request: Request) -> str:
    """Return the common keys of a command, and what the named configs set."""
    takes_config = command == "fit"
    keys = {key: text for key, text in COMMON[command].items() if missing_package(key) is None}
    lines = [
        f"usage: bertlab {command} {'[CONFIG …] ' if takes_config else ''}[--KEY VALUE …]",
        "",
        _PURPOSE[command],
        "",
        *(f"  --{key:<32}{text}" for key, text in keys.items()),
    ]
    for path, content in request.files:
        lines += ["", f"{path} sets:", *(f"  --{key} {text}" for key, text in _leaves(content))]
    if takes_config and not request.files:
        names = offered_names()
        shown = [name for name in names if not name.startswith(("studies", "evaluations"))]
        lines += ["", "CONFIG is a file, or one of these:", *_folded(shown)]
    rest = "[CONFIG] " if takes_config else ""
    lines += ["", f"Every key, with type and default:  bertlab {command} {rest}--help all"]
    return "\n".join(lines) + "\n"


def _leaves(content: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a config as they are typed, with their values."""
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", yaml_inline(value)


def _folded(names: Sequence[str]) -> Iterator[str]:
    """Yield names in lines of at most 80 columns."""
    line = " "
    for name in names:
        if len(line) + len(name) + 1 > 80:
            yield line
            line = " "
        line += f" {name}"
    yield line
