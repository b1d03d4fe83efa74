"""``bertlab export``: a run, checkpoint or Hugging Face model to a Hugging Face folder."""

import sys
from pathlib import Path

from jsonargparse import ArgumentParser

from bertlab.config.parse import parse_arguments


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
    given = parse_arguments(parser, argv)
    from bertlab.checkpoints.run_checkpoint import words_checkpoints  # noqa: PLC0415
    from bertlab.training.report.model_card import hand_over  # noqa: PLC0415

    output = Path(given.output)
    sources = {output: given.source}
    if given.words_checkpoints:
        # words-1M.ckpt -> chck_1M
        sources = {
            output / file.stem.replace("words-", "chck_"): str(file)
            for file in words_checkpoints(given.source).values()
        }
    for folder, source in sources.items():
        report = hand_over(source, folder, given.overwrite)
        lines = [f"{report.output}: {report.architecture}", *(f"note: {n}" for n in report.notes)]
        sys.stdout.write("\n".join(lines) + "\n")
    return 0
