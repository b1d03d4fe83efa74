"""The short help of ``fit``, ``validate``, ``test`` and ``predict``, which needs no torch."""

from textwrap import fill, indent

from bertlab.config.request import Request
from bertlab.config.shipped import offered_names
from bertlab.config.yaml_files import leaves, yaml_inline
from bertlab.plugins.index import missing_package

_PURPOSE = {
    "fit": "Train from a config. Any key of it can be given on the command line, where it wins.",
    "validate": "Score MODEL, a run, checkpoint or Hugging Face model, on held-out text or rows.",
    "test": "Score MODEL, a fine-tuned run, checkpoint or Hugging Face model, on test rows.",
    "predict": "Predict on new text or rows with MODEL, a run, checkpoint or Hugging Face model.",
}
_ONNX = {"backend": "onnx: compute with onnxruntime, from the folder of an ONNX export"}
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
        "ckpt_path": "resume this run; last: the run of this config",
    },
    "validate": _ONNX,
    "test": {"data.test": "a file of rows, or a split of data.source", **_ONNX},
    "predict": {
        "text": "a text, perhaps with [MASK]",
        "text_pair": "a second text, where two are read",
        "input": "a file of texts or rows; - is standard input",
        "output": "file to write: .csv, .tsv, .parquet, else JSON lines",
        "head": "which one predicts, of a run with several (model.heads)",
        "top_k": "classes, answers or fillers of each row",
        "data.columns": "the file's column by the head's: '{text: review}'",
        **_ONNX,
    },
}


def short_help(command: str, request: Request) -> str:
    """Return the common keys of a command, and what the named configs set."""
    takes_config = command == "fit"
    keys = {key: text for key, text in COMMON[command].items() if missing_package(key) is None}
    lines = [
        f"usage: bertlab {command} {'[CONFIG …] ' if takes_config else 'MODEL '}[--KEY VALUE …]",
        "",
        _PURPOSE[command],
        "",
        *(f"  --{key:<32}{text}" for key, text in keys.items()),
    ]
    for path, content in request.files:
        set_here = (f"  --{key} {yaml_inline(value)}" for key, value in leaves(content))
        lines += ["", f"{path} sets:", *set_here]
    if takes_config and not request.files:
        names = offered_names()
        shown = [name for name in names if not name.startswith(("studies", "evaluations"))]
        folded = indent(fill(" ".join(shown), 78, break_on_hyphens=False), "  ")
        lines += ["", "CONFIG is a file, or one of these:", folded]
    rest = "[CONFIG] " if takes_config else ""
    lines += ["", f"Every key, with type and default:  bertlab {command} {rest}--help all"]
    return "\n".join(lines) + "\n"
