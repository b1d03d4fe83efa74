"""``bertlab export``: a model as a folder that others load, whole or not at all."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bertlab.api.exchange import Exporter, ExportReport, ModelAddress
from bertlab.checkpoints.pretrained import one_head
from bertlab.checkpoints.restore import read_pretrained
from bertlab.checkpoints.run_checkpoint import words_checkpoints
from bertlab.errors import CheckpointError, OutputError
from bertlab.files import new_folder
from bertlab.plugins.hooks import hook_results
from bertlab.plugins.index import load_class

TRANSFORMERS = "transformers"


def export_model(
    source: str,
    output: Path,
    overwrite: bool = False,
    form: str = TRANSFORMERS,
    head: str | None = None,
    settings: Mapping[str, Any] | None = None,
    address: ModelAddress | None = None,
) -> ExportReport:
    """Write a model as a folder that others load; it appears whole or not at all."""
    exporter: Exporter = load_class("exporter", form, Exporter)(**(settings or {}))
    start = read_pretrained(source)
    if exporter.has_heads or head is not None:
        start = one_head(start, head)
    place = address or ModelAddress(output.absolute().name)
    with export_folder(output, overwrite) as folder:
        report = exporter.write(start, folder)
        report.output, report.form = output, form
        hook_results(
            "bertlab_export_files",
            folder=folder,
            model=start,
            report=report,
            loading_code=exporter.loading_code(report, place),
            address=place,
        )
    return report


def export_words(
    run: str,
    output: Path,
    overwrite: bool = False,
    form: str = TRANSFORMERS,
    settings: Mapping[str, Any] | None = None,
    repository: str | None = None,
) -> Iterator[ExportReport]:
    """Write each ``words-….ckpt`` of a run into a folder of its own, named as BabyLM does."""
    for file in words_checkpoints(run).values():
        revision = file.stem.replace("words-", "chck_")  # words-1M.ckpt -> chck_1M
        address = None if repository is None else ModelAddress(repository, revision, on_hub=True)
        yield export_model(str(file), output / revision, overwrite, form, None, settings, address)


@contextlib.contextmanager
def export_folder(output: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder to fill, which becomes ``output`` at the end of the block."""
    _check_output(output, overwrite)
    try:
        with new_folder(output, overwrite=True) as folder:
            yield folder
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"{output}: cannot be written ({reason}); nothing was changed there"
        ) from None


def _check_output(output: Path, overwrite: bool) -> None:
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
