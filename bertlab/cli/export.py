"""``bertlab export``: a run, checkpoint or Hugging Face model to a Hugging Face folder."""

import sys
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from torch import Tensor

from bertlab.api.head import Head
from bertlab.api.task import TaskContext
from bertlab.checkpoints.export import export_huggingface
from bertlab.checkpoints.huggingface_layers import HEAD_LAYOUTS, HuggingFaceHead
from bertlab.checkpoints.loading import load_matching
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import read_pretrained
from bertlab.config.parse import parse_arguments
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError
from bertlab.heads.classification import ClassifierHead
from bertlab.model.build import build_encoder, build_tasks
from bertlab.tokenizer.wordpiece import WordPieceTokenizer


def main(command: str, argv: list[str]) -> int:
    """Run ``export``; return the exit code."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.add_argument(
        "source", type=str, help="run directory, checkpoint, Hugging Face folder or hub name"
    )
    parser.add_argument("output", type=str, help="folder to write")
    parser.add_argument(
        "--overwrite", type=bool, default=False, help="replace what is in the output folder"
    )
    arguments = parse_arguments(parser, argv)
    export(arguments.source, Path(arguments.output), arguments.overwrite)
    return 0


def export(source: str, output: Path, overwrite: bool) -> None:
    """Write the encoder, its heads and its tokenizer as a Hugging Face folder.

    A fine-tuned model becomes the class of ``transformers`` with the same layers; where there is
    none, the encoder is written alone and a note says so.

    Args:
        source: a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name.
        output: folder to write.
        overwrite: replace what is there.

    Raises:
        CheckpointError: if the source cannot be read, the encoder is not a BERT, or the output is
            in use.
    """
    start = read_pretrained(source)
    encoder = build_encoder(start.encoder_config, start.vocab_size)
    if not isinstance(encoder, BertEncoder):
        raise CheckpointError(
            f"{source}: the encoder {start.encoder_config['name']!r} is not a BERT; Hugging Face "
            "has no class for it"
        )
    if start.tokenizer is None:
        raise CheckpointError(f"{source}: has no tokenizer (vocab.txt or tokenizer.json) to export")
    loaded = load_matching(encoder, start.encoder_state, start.source, ("pooler.",))
    head, tasks, left = start.head, dict(start.task_states), []
    if start.head_config is not None:
        head = _head_of_run(start, start.head_config, encoder, start.tokenizer)
    if head is not None and start.head_config is not None:
        state = tasks.pop(start.head_config["name"])
        left = [f"{name} {_show(state[name])}" for name in state if name not in head.state]
    report = export_huggingface(encoder, tasks, start.tokenizer, output, overwrite, head)
    sys.stdout.write(f"{output}: {report.architecture}\n")
    if left:
        report.notes.append(f"left behind, as transformers has no place for it: {', '.join(left)}")
    if loaded.newly_initialized and (head is None or head.layout.has_pooler):
        report.notes.append(f"new random weights: {', '.join(loaded.newly_initialized)}")
    for note in report.notes:
        sys.stdout.write(f"note: {note}\n")


def _show(tensor: Tensor) -> str:
    """Return the value of a number, the shape of anything larger."""
    return f"{tensor.item():g}" if tensor.dim() == 0 else str(tuple(tensor.shape))


def _head_of_run(
    start: Pretrained, config: dict[str, Any], encoder: BertEncoder, tokenizer: WordPieceTokenizer
) -> HuggingFaceHead | None:
    """Return the head of a fine-tuned run; None if ``transformers`` has no class of its layers."""
    name = config["name"]
    head = build_tasks({"head": config})[name]
    assert isinstance(head, Head)
    if head.huggingface not in HEAD_LAYOUTS:
        return None
    head.build(TaskContext(encoder, tokenizer, labels=start.labels))
    load_matching(head, start.task_states[name], start.source)
    names = HEAD_LAYOUTS[head.huggingface].names
    if {each for each, _ in head.named_parameters()} != set(names):
        return None
    state = {each: tensor for each, tensor in head.state_dict().items() if each in names}
    dropout = head.dropout_prob if isinstance(head, ClassifierHead) else None
    return HuggingFaceHead(head.huggingface, state, start.labels, dropout)
