"""``bertlab export``: a run, checkpoint or Hugging Face model as a folder that others load."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser, Namespace

from bertlab import CheckpointError, CommandError
from bertlab.extend import (
    add_to_json,
    check_model,
    installed,
    load_class,
    parse_arguments,
    print_table,
    say,
    split_arguments,
    working,
)

if TYPE_CHECKING:
    from bertlab_interop.contract import ExportReport

_SETTINGS = "settings"


@dataclass
class _Options:
    """How a model is exported.

    Args:
        words_checkpoints: export each words-….ckpt of a run, into a folder below output called as
            BabyLM's revisions are: chck_1M, chck_2M, …
        overwrite: replace what is in the output folder
        format: transformers; onnx: one file with the heads; sentence-transformers: vectors that
            are means over tokens; or that of a plugin, whose settings are options --settings.KEY
        quantize: int8, with --format onnx: a file of about a quarter of the size, for CPUs
        validation: with --format onnx, a file of labelled rows: size, rows a second and scores of
            PyTorch and of the file are printed, and written to comparison.json
        head: the head to export, of a run with several (model.heads)
        push: upload the folder to this repository of the Hugging Face hub, USER/NAME, made if need
            be; each of words_checkpoints to a branch of its own
        private: make a new repository that only you see
    """

    words_checkpoints: bool = False
    overwrite: bool = False
    format: str = "transformers"
    quantize: Literal["int8"] | None = None
    validation: str | None = None
    head: str | None = None
    push: str | None = None
    private: bool = False


def main(command: str, argv: list[str]) -> int:
    """Run ``export``; return the exit code."""
    parser = make_parser(command)
    _add_settings(parser, argv)
    given = parse_arguments(parser, argv)
    check_model(given.model)
    if not given.words_checkpoints:  # each has a folder of its own
        check_output(Path(given.output), given.overwrite)
    from bertlab_interop.export import push_to  # noqa: PLC0415  torch, not for --help

    push = None if given.push is None else push_to(given.push, given.private)
    with working(f"exporting {Path(given.model).name}"):
        for report in _exports(given):
            notes = [f"note: {each}" for each in report.notes]
            add_to_json(exports=[report])
            say("\n".join([f"{report.output}: {report.architecture}", *notes]))
            if report.comparison:
                print_table(*comparison_table(report.comparison), figures=3)
            if push is not None:
                branch = report.output.name if given.words_checkpoints else None
                say(f"pushed: {push(report.output, branch)}")
    return 0


def _exports(given: Namespace) -> "Iterator[ExportReport]":
    """Yield what was exported, one model at a time."""
    from bertlab_interop.contract import ModelAddress  # noqa: PLC0415  torch, not for --help
    from bertlab_interop.export import export_words, write_model  # noqa: PLC0415

    output, name, form = Path(given.output), given.push, given.format
    settings = _settings(given)
    if given.words_checkpoints:
        yield from export_words(given.model, output, given.overwrite, form, settings, name)
    else:
        address = None if name is None else ModelAddress(name, on_hub=True)
        arguments = form, given.head, settings, address
        yield write_model(given.model, output, given.overwrite, *arguments)


def check_output(output: Path, overwrite: bool) -> None:
    """Refuse a folder that is in the way: CheckpointError."""
    if output.exists() and not output.is_dir():
        raise CheckpointError(f"{output}: is a file, expected a folder to make")
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not overwrite:
        raise CheckpointError(
            f"{output}: the folder is not empty; choose another, or replace an older export by "
            "--overwrite true"
        )
    if not (output / "config.json").is_file():
        raise CheckpointError(
            f"{output}: holds files but no config.json, so it is no export and is not overwritten"
        )


def comparison_table(
    found: dict[str, Any],
) -> tuple[str, list[tuple[str, ...]], tuple[str, ...]]:
    """Return title, rows and headings of a comparison, as people read it."""
    rows: list[tuple[str, ...]] = [
        (
            each["form"],
            f"{each['bytes'] / 1e6:.1f}",
            f"{each['rows_per_second']:.1f}",
            f"{each['results'][found['score']]:.4f}",
        )
        for each in found["forms"]
    ]
    title = f"{found['rows']:,} rows of {found['file']}, {found['threads']} threads"
    return title, rows, ("form", "MB", "rows a second", found["score"])


def _settings(given: Namespace) -> dict[str, Any]:
    """Return the exporter's settings, ``--quantize`` and ``--validation`` among them."""
    from bertlab_interop.contract import Exporter  # noqa: PLC0415  torch, not for --help

    settings = dict(given.as_dict().get(_SETTINGS) or {})
    for key, what in (("quantize", "form"), ("validation", "report")):
        value = given[key]
        if value is None:
            continue
        if key not in signature(load_class("exporter", given.format, Exporter)).parameters:
            raise CommandError(
                f"--{key} {value}: --format {given.format} has no such {what}; expected "
                "--format onnx"
            )
        settings[key] = value
    return settings


def _add_settings(parser: ArgumentParser, argv: Sequence[str]) -> None:
    """Add the settings of the exporter that ``--format`` names."""
    named = [value for key, value, _ in split_arguments(argv) if key == "--format" and value]
    if named:
        if named[-1] not in installed("exporter"):
            load_class("exporter", named[-1], object)  # says so, before torch is imported
        from bertlab_interop.contract import Exporter  # noqa: PLC0415

        parser.add_class_arguments(load_class("exporter", named[-1], Exporter), _SETTINGS)


def make_parser(command: str) -> ArgumentParser:
    """Return the parser of the options, without the settings of an exporter."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.add_argument(
        "model",
        type=str,
        metavar="MODEL",
        help="run directory, checkpoint, Hugging Face folder or hub name",
    )
    parser.add_argument("output", type=str, metavar="OUTPUT", help="folder to write")
    parser.add_class_arguments(_Options, None, as_group=False, instantiate=False)
    return parser
