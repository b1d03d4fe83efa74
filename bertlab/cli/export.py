"""``bertlab export``: a run, checkpoint or Hugging Face model as a folder that others load."""

from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser

from bertlab.config.parse import parse_arguments
from bertlab.errors import say


def main(command: str, argv: list[str]) -> int:
    """Run ``export``; return the exit code."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.add_argument(
        "source", type=str, help="run directory, checkpoint, Hugging Face folder or hub name"
    )
    parser.add_argument("output", type=str, help="folder to write")
    parser.add_argument(
        "--words_checkpoints",
        type=bool,
        default=False,
        help="export each words-….ckpt of a run, into a folder below output called as BabyLM's "
        "revisions are: chck_1M, chck_2M, …",
    )
    parser.add_argument(
        "--overwrite", type=bool, default=False, help="replace what is in the output folder"
    )
    parser.add_argument(
        "--format",
        type=Literal["transformers", "onnx", "sentence-transformers"],
        default="transformers",
        help="a folder for transformers; one ONNX file with the heads; or a folder for "
        "sentence-transformers, whose vectors are means over tokens",
    )
    parser.add_argument(
        "--push",
        type=str | None,
        default=None,
        metavar="REPOSITORY",
        help="upload the folder to this repository of the Hugging Face hub, USER/NAME, made if "
        "need be; each of words_checkpoints to a branch of its own",
    )
    parser.add_argument(
        "--private", type=bool, default=False, help="make a new repository that only you see"
    )
    given = parse_arguments(parser, argv)
    # torch, not for --help
    from bertlab.training.hand_over import (  # noqa: PLC0415
        Repository,
        hand_over,
        hand_over_words,
        push,
    )
    from bertlab.training.loading_code import Address  # noqa: PLC0415

    output, name = Path(given.output), given.push
    repository = None if name is None else Repository(name, given.private)
    if given.words_checkpoints:
        reports = hand_over_words(given.source, output, given.overwrite, name, given.format)
    else:
        address = None if name is None else Address(name, on_hub=True)
        report = hand_over(given.source, output, given.overwrite, address, given.format)
        reports = iter([report])
    for report in reports:
        lines = [f"{report.output}: {report.architecture}", *(f"note: {n}" for n in report.notes)]
        say("\n".join(lines))
        if repository is not None:
            branch = report.output.name if given.words_checkpoints else None
            say(f"pushed: {push(report.output, repository, branch)}")
    return 0
