"""The config of the model that ``validate``, ``test`` and ``predict`` use, read without PyTorch.

A command takes it from the checkpoint. The same is in the run's ``config.yaml``, which is enough to
tell which plugins the run has, and so which keys there are. Like a checkpoint, it may come from
anywhere: it is read as data, of which a closed list of keys is taken.

Of a Hugging Face folder ``config.json`` says which head or objectives it has.
"""

from pathlib import Path

from bertlab import BertlabError
from bertlab.extend import (
    BEST_CHECKPOINT,
    CONFIG_FILE,
    MANIFEST_FILE,
    Config,
    Request,
    choose_head,
    one_head_config,
    read_config,
    read_json,
    read_request,
    read_stored_config,
    split_arguments,
    yaml_inline,
)

# all that a record of keys is about, and none of packages, whose hooks would be asked
_SECTIONS = ("model", "data", "trainer", "seed", "seed_everything")
_OF_FOLDERS = ("config.json", "bert_config.json")
_LARGEST = 2**20  # bytes of config.json: names of many classes
HEADS = {
    "SequenceClassification": "single_sentence",
    "TokenClassification": "tagging",
    "QuestionAnswering": "span",
    "MultipleChoice": "multiple_choice",
}
"""Heads by what a class of ``transformers`` is for."""
_OBJECTIVES = {
    "BertForPreTraining": ["mlm", "nsp"],
    "BertForNextSentencePrediction": ["nsp"],
    "BertLMHeadModel": ["clm"],
    **{f"{each}ForMaskedLM": ["mlm"] for each in ("Bert", "Roberta", "XLMRoberta", "ModernBert")},
}


def with_stored_config(request: Request, command: str) -> Request | None:
    """Return a request merged with the config of its model; None where that is not plain to see.

    Raises:
        CommandError: the model has several heads, and none of them, or another, is named.
    """
    if request.files or (request.ckpt_path is None and request.init_from is not None):
        return request
    if request.ckpt_path is None:
        return None
    path = Path(request.ckpt_path).expanduser()
    if (config := _model_config(path)) is not None:
        return _of_folder(request, config)
    run = path.parent.parent if path.is_file() else path  # RUN/checkpoints/last.ckpt
    file = run / CONFIG_FILE
    try:
        content = read_config(file)
        part = {name: content[name] for name in _SECTIONS if name in content}
        stored, _ = read_stored_config(part, str(file))
        checkpoint = path if path.is_file() else _checkpoint(run)
    except (BertlabError, OSError, ValueError, KeyError, TypeError):
        return None  # the command itself says it, of its checkpoint
    if checkpoint is None:
        return None
    chosen = None
    if command == "predict" or request.one_head is not None:
        chosen = choose_head(stored, request.one_head, str(checkpoint), "--head")
    return _merged(request, stored, chosen, file)


def _merged(request: Request, stored: Config, head: str | None, file: Path) -> Request | None:
    try:
        config = stored if head is None else one_head_config(stored, head)
        return read_request(request.argv, config, str(file), file)
    except (BertlabError, KeyError):
        return None


def _checkpoint(run: Path) -> Path | None:
    """Return the checkpoint that a command uses of a run; None where that has to be looked into."""
    if (run / BEST_CHECKPOINT).is_file():
        name = read_json(run / BEST_CHECKPOINT, _LARGEST)["checkpoint"]
        file = run / "checkpoints" / Path(name).name
        return file if file.is_file() else None
    last = run / "checkpoints" / "last.ckpt"
    written = last.stat().st_mtime_ns
    later = (each.stat().st_mtime_ns > written for each in last.parent.glob("*.ckpt"))
    return None if any(later) else last


def _model_config(folder: Path) -> Path | None:
    """Return the ``config.json`` of a Hugging Face folder; None of anything else."""
    if (folder / MANIFEST_FILE).exists():  # a run's
        return None
    return next((folder / name for name in _OF_FOLDERS if (folder / name).is_file()), None)


def _of_folder(request: Request, config: Path) -> Request | None:
    """Return a request with the head or the objectives of its folder, as far as is known."""
    given = split_arguments(request.argv)
    rest = [token for key, _, tokens in given if key != "--ckpt_path" for token in tokens]
    rest += ["--model.init_from", str(request.ckpt_path)]
    try:
        if not request.fine_tunes and not request.objectives_named:
            content = read_json(config, _LARGEST)
            named, is_pair = content["architectures"][0], request.is_argument("data.text_pair")
            rest += ["--model.head", head] if (head := _head(content, is_pair)) else []
            rest += [] if head else ["--model.objectives", yaml_inline(_OBJECTIVES[named])]
        return read_request(rest)
    except (BertlabError, OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _head(content: Config, is_pair: bool) -> str | None:
    """Return the head that reads the model of a ``config.json``; None if it is none of these."""
    kind = str(content["architectures"][0]).partition("For")[2]
    if kind != "SequenceClassification":
        return HEADS.get(kind)
    if content.get("problem_type") == "multi_label_classification":
        return "multi_label"
    return "sentence_pair" if is_pair else HEADS[kind]
