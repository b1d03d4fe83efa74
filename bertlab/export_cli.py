"""``bertlab export``: a run, checkpoint or Hugging Face model to a Hugging Face folder."""

import sys
from pathlib import Path

from jsonargparse import ArgumentParser

from bertlab.arguments import parse_arguments
from bertlab.checkpoints.huggingface_export import export_huggingface
from bertlab.checkpoints.loading import load_matching
from bertlab.checkpoints.warm_start import read_warm_start
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError
from bertlab.model_building import build_encoder


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
    """Write the encoder, its pre-training heads and its tokenizer as a Hugging Face folder.

    Args:
        source: a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name.
        output: folder to write.
        overwrite: replace what is there.

    Raises:
        CheckpointError: if the source cannot be read, the encoder is not a BERT, or the output is
            in use.
    """
    start = read_warm_start(source)
    section = {"name": start.encoder_name, **start.encoder_config}
    encoder = build_encoder(section, start.vocab_size)
    if not isinstance(encoder, BertEncoder):
        raise CheckpointError(
            f"{source}: the encoder {start.encoder_name!r} is not a BERT; Hugging Face has no "
            "class for it"
        )
    if start.tokenizer is None:
        raise CheckpointError(f"{source}: has no tokenizer (vocab.txt or tokenizer.json) to export")
    loaded = load_matching(encoder, start.encoder_state, start.source, ("pooler.",))
    report = export_huggingface(encoder, start.task_states, start.tokenizer, output, overwrite)
    sys.stdout.write(f"{output}: {report.architecture}\n")
    if loaded.newly_initialized:
        report.notes.append(f"new random weights: {', '.join(loaded.newly_initialized)}")
    for note in report.notes:
        sys.stdout.write(f"note: {note}\n")
