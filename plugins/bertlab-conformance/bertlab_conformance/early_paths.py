"""Mistakes in places: files, columns, runs and folders that are not there, told before PyTorch.

The words are bertlab's own, seconds sooner. Only what is plain to see is looked at here: rows
behind a URL, of a source, a pattern or a named format are left to the command.
"""

from collections.abc import Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any

import yaml

from bertlab import CommandError
from bertlab.api import Column
from bertlab.extend import (
    STANDARD_INPUT,
    Request,
    check_model,
    ending_format,
    is_hub_name,
    is_url,
    load_yaml,
    looks_like_path,
    map_columns,
    no_such_file,
    no_such_run,
    no_such_source,
    open_rows,
    output_form,
    read_mapping,
    source_of,
)

_AUTO = "auto"
# what a run, or the folder of a model, has one of
_OF_MODELS = (
    *("manifest.json", "best.json", "checkpoints", "stages"),
    *("config.json", "bert_config.json"),
)
_LAST = "last"  # of --ckpt_path: the newest checkpoint of the config's own run
_READ_OTHERWISE = ("format", "input_format", "delimiter", "quote", "header")
_REQUIRED = ("text", "text_a", "text_b", "label", "labels", "question", "context", "tokens", "tags")


def check_places(command: str, request: Request) -> None:
    """Refuse a run, folder of weights, file of rows or column that is not there.

    Raises:
        CommandError: no model is given, or no data.
        CheckpointError: there is no such run or folder.
        DataError: there is no such file or column, or the file holds no rows.
    """
    request.check_weights(command)
    _check_weights(request)
    data = request.values.get("data") or {}
    if not isinstance(data, dict):  # the parser says so
        return
    if command == "fit":
        _check_training_data(request, data)
    if command == "predict":
        given, output = data.get("input"), request.values.get("output")
        if isinstance(given, str) and _is_missing(given):
            raise no_such_file(given)
        if isinstance(output, str) and request.values.get("output_format", _AUTO) == _AUTO:
            output_form(output)
    path = request.ckpt_path
    if path is not None and path != _LAST and _is_other_folder(Path(path).expanduser()):
        raise no_such_run(path)


def _check_training_data(request: Request, data: Mapping[str, Any]) -> None:
    if not (request.files or request.ckpt_path or data):
        raise CommandError(
            "fit: found no config and no data, expected a config, as in bertlab fit quickstart, or "
            "data: --data.corpus for text, --data.source for labelled rows; see bertlab fit --help"
        )
    for location in _locations(data) if request.fine_tunes else ():
        _check_rows(location, data)
    corpus = data.get("corpus") if request.objectives else None
    for each in corpus if isinstance(corpus, list) else [corpus]:
        if isinstance(each, str) and _is_missing(each):
            raise no_such_source(each)


def _check_weights(request: Request) -> None:
    path, start = request.ckpt_path, request.init_from
    if path is None and start is not None:
        check_model(start)
    elif path is not None and path != _LAST and _is_missing(path):
        if "/" in path and is_hub_name(path):
            check_model(path)
        else:
            raise no_such_run(path)


def _is_other_folder(path: Path) -> bool:
    """Return whether a folder has nothing of a run or a model, such as the folder of all runs."""
    if not path.is_dir() or any((path / name).exists() for name in _OF_MODELS):
        return False
    return not any(path.glob("*.index"))  # of a reader


def _is_missing(location: str) -> bool:
    return _is_plain(location) and not Path(location).expanduser().exists()


def _locations(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the places of rows that a config gives, as texts."""
    for key in ("source", "train", "validation", "test"):
        given = data.get(key)
        for each in given.values() if isinstance(given, Mapping) else [given]:
            if isinstance(each, str) and _is_plain(each) and (key == "source" or _names_file(each)):
                yield each


def _names_file(split: str) -> bool:
    return looks_like_path(split) and ending_format(split) is not None


def _is_plain(location: str) -> bool:
    """Return whether a location is a path, and no URL, source, pattern or standard input."""
    others = is_url(location) or bool(source_of(location)) or has_magic(location)
    return not others and location != STANDARD_INPUT and ":" not in location


def _check_rows(location: str, data: Mapping[str, Any]) -> None:
    path = Path(location).expanduser()
    if not path.exists():
        if (folder := data.get("source")) and folder != location:
            return  # it may be a file in that folder
        raise no_such_file(location)
    columns = data.get("columns")
    if isinstance(columns, str):  # of an argument
        try:
            columns = load_yaml(columns)
        except yaml.YAMLError:  # the parser says so
            return
    if not path.is_file() or any(data.get(key) is not None for key in _READ_OTHERWISE):
        return
    form = ending_format(location)
    if form not in ("csv", "tsv", "jsonl") or not isinstance(columns, dict | None):
        return
    # places, as 0, stand for columns of a file without a header
    given = {name: each for name, each in (columns or {}).items() if name in _REQUIRED}
    if any(not isinstance(each, str) or each.lstrip("-").isdecimal() for each in given.values()):
        return
    wanted = [Column(name) for name in given]
    raw = open_rows(str(path), form, lambda _: True, names=list(given.values()))
    if raw.rows_vary and not raw.columns:
        return
    map_columns(raw, wanted, read_mapping(given, wanted, location), needs_truth=True)
