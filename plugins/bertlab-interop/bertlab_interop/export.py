"""Exports: a model as a folder that others load, whole or not at all, and on the hub."""

import contextlib
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

import bertlab
from bertlab import CommandError, Pretrained, Run, nearest
from bertlab.api import ConfigError, PluginError
from bertlab.extend import (
    OutputError,
    as_mistakes,
    first_result,
    hook_results,
    load_class,
    new_folder,
    one_head,
    read_pretrained,
    where_to_get,
)
from bertlab_interop.contract import Exporter, ExportReport, ModelAddress
from bertlab_interop.export_command import check_output
from bertlab_interop.hookspecs import Push

TRANSFORMERS = "transformers"


def export_model(
    source: str | Path,
    output: str | Path,
    overwrite: bool = False,
    form: str = TRANSFORMERS,
    head: str | None = None,
    settings: Mapping[str, Any] | None = None,
    repository: str | None = None,
) -> ExportReport:
    """Write a model as a folder that others load, with a model card (bertlab-pages).

    Args:
        source: run directory, checkpoint, Hugging Face folder or hub name.
        output: folder to make.
        overwrite: replace an older export.
        form: name of an exporter: ``transformers``, ``onnx`` (one file),
            ``sentence-transformers`` (the mean over tokens), or a plugin's.
        head: the one of several heads that is written.
        settings: arguments of the exporter.
        repository: of the Hugging Face hub, ``USER/NAME``, to upload the folder to.

    Raises:
        PluginError: there is no such exporter.
        ConfigError: it has no such setting.
        CommandError: several heads need one to be named, or a package is not installed.
        CheckpointError: there is no such form of the encoder, or the folder is in use.
        OutputError: the hub cannot be reached, or refuses; the folder stays.
    """
    push = None if repository is None else push_to(repository, private=False)
    address = None if repository is None else ModelAddress(repository, on_hub=True)
    report = write_model(str(source), Path(output), overwrite, form, head, settings, address)
    if push is not None:
        push(report.output, None)
    return report


def export_run(
    run: Run,
    output: str | Path,
    overwrite: bool = False,
    repository: str | None = None,
    form: str = TRANSFORMERS,
    head: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Write the model of a run as a folder that others load, ``run.export("my-bert")``.

    The arguments are those of :func:`export_model`.
    """
    with as_mistakes():
        return export_model(run.directory, output, overwrite, form, head, settings, repository)


def write_model(
    source: str,
    output: Path,
    overwrite: bool = False,
    form: str = TRANSFORMERS,
    head: str | None = None,
    settings: Mapping[str, Any] | None = None,
    address: ModelAddress | None = None,
) -> ExportReport:
    """Write a model as a folder that others load; it appears whole or not at all."""
    exporter = _exporter(form, settings or {})
    start = read_pretrained(source)
    if exporter.has_heads or head is not None:
        start = one_head(start, head)
    return write_read(start, output, overwrite, form, exporter, address)


def _exporter(form: str, settings: Mapping[str, Any]) -> Exporter:
    """Make an exporter; a call from Python has no parser that knows its settings."""
    made = load_class("exporter", form, Exporter)
    known = signature(made)
    try:
        known.bind(**settings)
    except TypeError as error:
        names = list(known.parameters)
        wrong = next(
            (
                f"found {each!r}{nearest(str(each), names)}"
                for each in settings
                if each not in names
            ),
            str(error),
        )
        raise ConfigError(
            f"settings: {wrong}, expected those of form {form!r}: {', '.join(names) or 'none'}"
        ) from None
    return made(**settings)


def write_read(
    start: Pretrained,
    output: Path,
    overwrite: bool,
    form: str = TRANSFORMERS,
    exporter: Exporter | None = None,
    address: ModelAddress | None = None,
) -> ExportReport:
    """Write a model that has been read; see :func:`write_model`."""
    exporter = exporter or load_class("exporter", form, Exporter)()
    place = address or ModelAddress(output.absolute().name)
    with export_folder(output, overwrite) as folder:
        report = exporter.write(start, folder)
        if not (folder / "config.json").is_file():
            wrote = ", ".join(sorted(each.name for each in folder.iterdir())) or "nothing"
            raise PluginError(
                f"exporter {form!r} wrote {wrote}, expected config.json among it: by that file a "
                "later export knows the folder for one, and may replace it"
            )
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
    find = getattr(bertlab, "words_checkpoints")  # noqa: B009  of bertlab-evaluations
    for file in find(run).values():
        revision = file.stem.replace("words-", "chck_")  # words-1M.ckpt -> chck_1M
        address = None if repository is None else ModelAddress(repository, revision, on_hub=True)
        yield write_model(str(file), output / revision, overwrite, form, None, settings, address)


@contextlib.contextmanager
def export_folder(output: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder to fill, which becomes ``output`` at the end of the block."""
    check_output(output, overwrite)
    try:
        with new_folder(output, overwrite=True) as folder:
            yield folder
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"{output}: cannot be written ({reason}); nothing was changed there"
        ) from None


def push_to(repository: str, private: bool) -> Push:
    """Return what uploads a folder to a repository.

    Raises:
        CommandError: no package does, or the name is none of a repository.
    """
    push: Push | None = first_result("bertlab_push", repository=repository, private=private)
    if push is None:
        raise CommandError(f"--push: nothing uploads a model{where_to_get('key', 'push')}")
    return push
