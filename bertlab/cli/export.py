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
        "--overwrite", type=bool, default=False, help="replace what is in the output folder"
    )
    given = parse_arguments(parser, argv)
    from bertlab.checkpoints.export import export_model  # noqa: PLC0415  torch, not for --help

    report = export_model(given.source, Path(given.output), given.overwrite)
    lines = [f"{report.output}: {report.architecture}", *(f"note: {n}" for n in report.notes)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
