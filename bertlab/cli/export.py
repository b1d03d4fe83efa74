"""``bertlab export``: a run, checkpoint or Hugging Face model as a folder that others load."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import ArgumentParser, Namespace

from bertlab.config.parse import parse_arguments
from bertlab.errors import say, working

if TYPE_CHECKING:
    from bertlab.checkpoints.export import ExportReport


def main(command: str, argv: list[str]) -> int:
    """Run ``export``; return the exit code."""
    given = parse_arguments(make_parser(command), argv)
    # torch, not for --help
    from bertlab_pages.hand_over import Repository, push  # noqa: PLC0415

    repository = None if given.push is None else Repository(given.push, given.private)
    with working(f"exporting {Path(given.source).name}"):
        for report in _exports(given):
            notes = [f"note: {each}" for each in report.notes]
            say("\n".join([f"{report.output}: {report.architecture}", *notes]))
            if repository is not None:
                branch = report.output.name if given.words_checkpoints else None
                say(f"pushed: {push(report.output, repository, branch)}")
    return 0


def _exports(given: Namespace) -> "Iterator[ExportReport]":
    """Yield what was exported, one model at a time."""
    from bertlab.training.loading_code import Address  # noqa: PLC0415
    from bertlab_pages.hand_over import hand_over, hand_over_words  # noqa: PLC0415

    output, name = Path(given.output), given.push
    if given.words_checkpoints:
        yield from hand_over_words(given.source, output, given.overwrite, name, given.format)
    else:
        address = None if name is None else Address(name, on_hub=True)
        yield hand_over(given.source, output, given.overwrite, address, given.format, given.head)


def make_parser(command: str) -> ArgumentParser:
    """Return the parser of the options."""
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
        "--head",
        type=str | None,
        default=None,
        help="the head to export, of a run with several (model.heads)",
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
    return parser
