"""Mistakes in places: files, columns, runs and folders that are not there, told before PyTorch.

The words are bertlab's own, seconds sooner. Only what is plain to see is looked at here: rows
behind a URL, of a source, a pattern or a named format are left to the command.
"""

from collections.abc import Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any

import yaml

from bertlab import CheckpointError, CommandError, nearest
from bertlab.api import Column
from bertlab.extend import (
    STANDARD_INPUT,
    Request,
    ending_format,
    is_url,
    load_yaml,
    looks_like_path,
    map_columns,
    no_such_file,
    open_rows,
    read_mapping,
    source_of,
)

_LAST = "last"  # of --ckpt_path: the newest checkpoint of the config's own run
_READ_OTHERWISE = ("format", "input_format", "delimiter", "quote", "header")
_REQUIRED = ("text", "text_a", "text_b", "label", "labels", "question", "context", "tokens", "tags")


def check_places(command: str, request: Request) -> None:
    """Refuse a run, folder of weights, file of rows or column that is not there.

    Raises:
        CommandError: no model is given.
        CheckpointError: there is no such run or folder.
        DataError: there is no such file or column, or the file holds no rows.
    """
    if command != "fit" and not (request.ckpt_path or request.init_from):
        raise CommandError(
            f"{command}: no weights; expected --ckpt_path with a run or checkpoint, or "
            "--model.init_from with a Hugging Face model"
        )
    _check_weights(request)
    data = request.values.get("data") or {}
    if command == "fit" and request.fine_tunes and isinstance(data, dict):
        for location in _locations(data):
            _check_rows(location, data)
    given = data.get("input") if command == "predict" and isinstance(data, dict) else None
    if isinstance(given, str) and _is_plain(given) and not Path(given).expanduser().exists():
        raise no_such_file(given)


def _check_weights(request: Request) -> None:
    path = request.ckpt_path
    if path is not None and path != _LAST and _is_missing_folder(path):
        hint = nearest(Path(path).name, _names_beside(path))
        raise CheckpointError(f"--ckpt_path: {path}: no such run or checkpoint{hint}")
    start = request.init_from
    if path is None and start is not None and _is_missing_folder(start):
        folder = Path(start).expanduser()
        hint = nearest(folder.name, _names_beside(start))
        raise CheckpointError(f"{folder}: no such folder{hint}")


def _is_missing_folder(given: str) -> bool:
    """Return whether nothing is at a path that cannot be a name on the hub: ``runs/mine``."""
    path = Path(given).expanduser()
    if path.exists() or is_url(given) or ":" in given:
        return False
    local = given.startswith((".", "/", "~")) or given.count("/") > 1
    return local or ("/" in given and path.parent.is_dir())


def _names_beside(path: str) -> list[str]:
    folder = Path(path).expanduser().parent
    return [each.name for each in folder.iterdir()] if folder.is_dir() else []


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
