"""Mistakes in places: files, columns, runs and folders that are not there, told before PyTorch.

The words are bertlab's own, seconds sooner. Only what is plain to see is looked at here: rows
behind a URL, of a source, a pattern or a named format are left to the command.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import yaml

from bertlab import CommandError, check_at_least
from bertlab.api import Column
from bertlab.extend import (
    OTHER_NAMES,
    Request,
    RowReading,
    check_model,
    ending_format,
    evaluation_splits,
    is_hub_name,
    is_missing,
    load_yaml,
    looks_like_path,
    map_columns,
    naming_head,
    no_such_file,
    no_such_run,
    no_such_source,
    no_such_split,
    no_test_rows,
    one_input,
    open_rows,
    output_form,
    read_mapping,
)

_AUTO = "auto"
Columns = Sequence[Column] | None  # of a head; None where they are not known
# what a run, or the folder of a model, has one of
_OF_MODELS = (
    *("manifest.json", "best.json", "checkpoints", "stages"),
    *("config.json", "bert_config.json"),
)
_LAST = "last"  # of --ckpt_path: the newest checkpoint of the config's own run
_SPLITS = ("source", "train", "validation", "test")
_READ_OTHERWISE = ("format", "delimiter", "quote", "header")
_REQUIRED = ("text", "text_a", "text_b", "label", "labels", "question", "context", "tokens", "tags")


def check_model_place(command: str, request: Request) -> None:
    """Refuse a run or folder of weights that is not there.

    Raises:
        CommandError: no model is given.
        CheckpointError: there is no such run or folder.
    """
    request.check_weights(command)
    _check_weights(request)


def check_run_folder(request: Request) -> None:
    """Refuse a folder that is there, but neither a run nor a model's: CheckpointError."""
    path = request.ckpt_path
    if path is not None and path != _LAST and _is_other_folder(Path(path).expanduser()):
        raise no_such_run(path)


def check_data(command: str, request: Request, columns: Mapping[str, Columns]) -> None:
    """Refuse a file of rows or column that is not there, and options that ask for nothing.

    Args:
        command: that is typed.
        request: what it asks for, merged with the config of the run that it uses.
        columns: that each head reads, by its name, as far as they are known; of a single head, or
            of objectives, under an empty name.

    Raises:
        CommandError: ``fit`` is given nothing.
        ConfigError: ``predict`` is given nothing to predict on, or the best 0; ``test`` no rows.
        DataError: there is no such file or column, or the file holds no rows.
    """
    data = request.values.get("data") or {}
    if not isinstance(data, dict):  # the parser says so
        return
    if command == "fit":
        _check_training_data(request, data, columns)
    elif command == "predict":
        _check_input(request, data, columns.get(""))
    elif request.fine_tunes:
        parts = _parts(request, data)
        if command == "test":  # where some have rows to test on, those are meant
            parts = {n: own for n, own in parts.items() if own.get("test") is not None} or parts
        for name, own in parts.items():
            with naming_head(name) if name else nullcontext():
                _check_scored(command, own, columns.get(name))


def _parts(request: Request, data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the section ``data`` of each head by its name; of a single one under an empty name."""
    if not request.heads:
        return {"": data}
    own = data.get("heads") or {}
    return {name: found for name in request.heads if isinstance(found := own.get(name), dict)}


def _check_scored(command: str, data: Mapping[str, Any], columns: Columns) -> None:
    source, train = data.get("source"), data.get("train")
    if command == "test":
        plain = all(isinstance(each, str | None) for each in (source, train))
        if plain and evaluation_splits(source, train, data.get("test"), "test") is None:
            raise no_test_rows()
        keys: tuple[str, ...] = ("test",)
    else:  # rows of training are held out, where there are none of validation
        keys = ("source", "train") if data.get("validation") is None else ("validation",)
    for key, location in _locations(data, keys):
        _check_rows(location, data, columns, key)


def _check_training_data(
    request: Request, data: Mapping[str, Any], columns: Mapping[str, Columns]
) -> None:
    # --resume RUN: the parser says what is meant
    meant = request.values.keys() & OTHER_NAMES.keys()
    if not (request.files or request.ckpt_path or data or meant):
        raise CommandError(
            "fit: found no config and no data, expected a config, as in bertlab fit quickstart, or "
            "data: --data.corpus for text, --data.source for labelled rows; see bertlab fit --help"
        )
    for name, own in _parts(request, data).items() if request.fine_tunes else ():
        with naming_head(name) if name else nullcontext():
            for key, location in _locations(own):
                _check_rows(location, own, columns.get(name), key)
    corpus = data.get("corpus") if request.objectives else None
    for each in corpus if isinstance(corpus, list) else [corpus]:
        if isinstance(each, str) and is_missing(each):
            raise no_such_source(each)


def _check_input(request: Request, data: Mapping[str, Any], columns: Columns) -> None:
    output, given, top_k = request.values.get("output"), data.get("input"), None
    if isinstance(output, str) and request.values.get("output_format", _AUTO) == _AUTO:
        output_form(output)
    with suppress(TypeError, ValueError):  # the parser says so
        top_k = int(request.values.get("top_k"))  # type: ignore[arg-type]
    check_at_least("--top_k", top_k, 1)
    one_input(data.get("text") or None, given)
    if not isinstance(given, str):
        return
    if is_missing(given):
        raise no_such_file(given)
    if columns is not None:
        if request.fine_tunes:
            _check_rows(given, {**data, "format": data.get("input_format")}, columns, "input")
        else:  # texts for objectives have no keys that say how they are read
            _check_rows(given, {}, columns, "input", RowReading(keys={}))


def _check_weights(request: Request) -> None:
    path, start = request.ckpt_path, request.init_from
    if path is None and start is not None:
        check_model(start)
    elif path is not None and path != _LAST and is_missing(path):
        if "/" in path and is_hub_name(path):
            check_model(path)
        else:
            raise no_such_run(path)


def _is_other_folder(path: Path) -> bool:
    """Return whether a folder has nothing of a run or a model, such as the folder of all runs."""
    if not path.is_dir() or any((path / name).exists() for name in _OF_MODELS):
        return False
    return not any(path.glob("*.index"))  # of a reader


def _locations(data: Mapping[str, Any], keys: Sequence[str] = _SPLITS) -> Iterator[tuple[str, str]]:
    """Yield the places of rows that a config gives at some keys, each with its key."""
    for key in keys:
        given = data.get(key)
        for each in given.values() if isinstance(given, Mapping) else [given]:
            if isinstance(each, str) and (key == "source" or _names_file(each)):
                yield key, each


def _names_file(split: str) -> bool:
    return looks_like_path(split) and ending_format(split) is not None


def _check_rows(
    location: str,
    data: Mapping[str, Any],
    known: Columns,
    key: str,
    reading: RowReading = RowReading(),  # noqa: B008  frozen
) -> None:
    """Refuse a file that is not there, holds no rows, or not the columns that are read of it.

    Of a model whose columns are not known, those are looked for that ``data.columns`` names.
    """
    path = Path(location).expanduser()
    if is_missing(location):
        source = data.get("source")
        if isinstance(source, str) and source != location:
            raise no_such_split(location, source, key)
        raise no_such_file(location)
    form, given = ending_format(location), _given_columns(data)
    otherwise = any(data.get(key) not in (None, _AUTO) for key in _READ_OTHERWISE)
    if otherwise or given is None or not path.is_file() or form not in ("csv", "tsv", "jsonl"):
        return
    if known is None:
        given = {name: each for name, each in given.items() if name in _REQUIRED}
    wanted = known or [Column(name) for name in given]
    if given.keys() - {each.name for each in wanted}:  # the head says so
        return
    sought = read_mapping(given, wanted, location)
    names = [each for options in sought.values() for each in options if isinstance(each, str)]
    raw = open_rows(str(path), form, lambda _: True, reading, names=names)
    if raw.rows_vary and not raw.columns:
        return
    map_columns(raw, wanted, sought, key != "input", reading)


def _given_columns(data: Mapping[str, Any]) -> dict[str, str] | None:
    """Return ``data.columns`` if it names a column for each; None of anything else."""
    columns: Any = data.get("columns")
    if isinstance(columns, str):  # of an argument
        with suppress(yaml.YAMLError):  # the parser says so
            columns = load_yaml(columns)
    if not isinstance(columns or {}, dict):
        return None
    given: dict[str, Any] = columns or {}
    # places, as 0, stand for columns of a file without a header
    named = (isinstance(each, str) and not each.lstrip("-").isdecimal() for each in given.values())
    return given if all(named) else None
