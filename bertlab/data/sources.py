"""What a location is: a path, a URL, an installed source such as ``hf:NAME``, or a model."""

import contextlib
import glob
import hashlib
import io
import json
import os
import re
import shlex
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, cast

from bertlab.api.examples import DataSource
from bertlab.errors import CheckpointError, ConfigError, nearest, told, without_secrets
from bertlab.files import make_folder, open_to_read, write_text
from bertlab.plugins.index import installed, load_class, of_package

WEIGHT_FILES = (  # best first
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
# bert-base-uncased, google-bert/bert-base-uncased; not ../x, not a/b/c
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
_HUB_ADDRESS = re.compile(r"^(hf:(//)?|https?://(huggingface\.co|hf\.co)/)")
_HUB_SAFETENSORS = ("*.json", "*.txt", "model*.safetensors")
_HUB_BIN = ("*.json", "*.txt", "pytorch_model*.bin")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


class RemoteFile(ABC):
    """A file, or folder, behind a URL; what is asked of it has the names that ``Path`` has.

    bertlab-cluster has the class of them. All methods raise OSError.
    """

    @abstractmethod
    def __init__(self, url: str) -> None: ...

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the path, without what a web server is asked for beside it."""

    @abstractmethod
    def open(self) -> io.BufferedReader:
        """Open the file as a stream of bytes, which perhaps cannot be sought in."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether something is there."""

    @abstractmethod
    def state(self) -> object:
        """Return what changes with the content, as :func:`state_of` does."""

    @abstractmethod
    def files(self) -> "Sequence[RemoteFile] | None":
        """Return the files of a folder or pattern in the order of local ones; None of one file."""


File = Path | RemoteFile


def default_cache_dir() -> Path:
    """Return ``$BERTLAB_CACHE``, or ``~/.cache/bertlab``."""
    return Path(os.environ.get("BERTLAB_CACHE") or "~/.cache/bertlab").expanduser()


def is_url(location: str) -> bool:
    """Return whether a location is a URL, and no path and no name of a source."""
    return _SCHEME.match(location) is not None


def located(location: str) -> File:
    """Return the file that a location stands for, which may not be there."""
    if not is_url(location):
        return Path(location)
    if local := re.match(r"(?:file|local)://", location, re.IGNORECASE):
        return Path(location[local.end() :])
    made = of_package("data.UrlFile", ConfigError, f"{location}: cannot read a URL")
    return cast("RemoteFile", made(location))


def open_file(path: File) -> io.BufferedReader:
    """Open a file, pipe, device or URL for reading."""
    return path.open() if isinstance(path, RemoteFile) else open_to_read(path)


def sha256_of(path: File) -> str:
    """Return the SHA-256 (hex) of what a file holds."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_of(path: File) -> object:
    """Return what changes with the content of a file: size, times, tags; None if it is not told."""
    if isinstance(path, RemoteFile):
        return path.state()
    with contextlib.suppress(OSError):
        found = path.stat()
        return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    return None


def remembered(cache: Path, of: object, find: Callable[[], str]) -> str:
    """Return what ``find`` finds, which is kept in a folder of the cache that is the user's alone.

    ``of`` says all that it depends on, as JSON. Where no such folder can be made nothing is kept.
    """
    user = getattr(os, "getuid", int)()  # on Windows 0, and no folder is anybody's alone
    folder = cache / f"found-{user}"
    kept = folder / hashlib.sha256(json.dumps(of).encode()).hexdigest()[:32]
    with contextlib.suppress(OSError):
        make_folder(cache)
        folder.mkdir(0o700, exist_ok=True)
        there = folder.lstat()
        if (there.st_uid, there.st_mode) == (user, stat.S_IFDIR | 0o700):
            if not kept.is_file():
                write_text(kept, find())
            return kept.read_text("ascii")
    return find()


def source_of(location: str) -> str | None:
    """Return the installed source that a location names, perhaps with an argument; no URL does."""
    first, _, rest = location.partition(":")
    # lines:FILE, my_package:lines:FILE
    names = (first, f"{first}:{rest.partition(':')[0]}")
    found = (each for each in names if each in installed("source") and not is_url(location))
    return next(found, None)


def class_of_source(location: str) -> tuple[type[DataSource], str]:
    """Import the class of the source that a location names; return its argument, too."""
    name = source_of(location) or location.partition(":")[0]
    return load_class("source", name, DataSource), location[len(name) + 1 :]


def open_source(location: str, /, **settings: Any) -> DataSource:  # noqa: ANN401  as its class says
    """Return the source that a location names, with settings of its own."""
    found, argument = class_of_source(location)
    try:
        signature(found).bind(location, argument, **settings)
    except TypeError as error:
        advice = f"settings are given in a mapping, {{source: {location}, …}}"
        raise ConfigError(f"{location}: {error}; {advice}") from None
    return found(location, argument, **settings)


def check_model(given: str) -> None:
    """Refuse a model that is neither here nor on the hub: by a command, before it imports torch.

    Raises:
        CheckpointError: there is none.
    """
    path = Path(given).expanduser()
    # of a reader, bert_model.ckpt stands for bert_model.ckpt.index
    if not path.exists() and not any(path.parent.glob(f"{glob.escape(path.name)}.*")):
        find_model_folder(given)


def explain_no_checkpoint(path: str | Path) -> str:
    """Say of a place that is there, but neither a run nor a checkpoint, what it is."""
    folder = Path(path).expanduser()
    if (folder / "config.json").is_file():
        given = shlex.quote(str(path))
        return f"; it is a Hugging Face folder: start a run from it by --model.init_from {given}"
    if files := sorted(each.name for each in folder.glob("*.ckpt")):
        return f"; expected one of the checkpoints in it, such as {folder / files[0]}, or the run"
    return "; it is there, but holds no config.yaml and no checkpoints" if folder.is_dir() else ""


def no_such_run(path: str) -> CheckpointError:
    """Return the error for a ``--ckpt_path`` that is no run and no checkpoint."""
    hint = explain_no_checkpoint(path) or _nearest_beside(Path(path).expanduser())
    return CheckpointError(f"--ckpt_path: {path}: no such run or checkpoint{hint}")


def find_model_folder(folder_or_hub_name: str | Path) -> Path:
    """Return the folder of a Hugging Face model, which is fetched if a hub name says which.

    Raises:
        CheckpointError: there is none.
    """
    folder = Path(folder_or_hub_name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{folder}: is a file, expected the folder that holds config.json")
    address = without_secrets(str(folder_or_hub_name))  # what follows hf:// may have a user as well
    named = _HUB_ADDRESS.sub("", address)
    if named != address:
        words = f"{folder_or_hub_name}: is an address"
        raise CheckpointError(f"{words}, expected the model's name on the hub: {named.strip('/')}")
    hint = _nearest_beside(folder)
    if isinstance(folder_or_hub_name, Path) or not is_hub_name(folder_or_hub_name):
        raise CheckpointError(f"{folder}: no such folder{hint}")
    return _download(folder_or_hub_name, hint)


def is_hub_name(given: str) -> bool:
    """Return whether the hub can have a model of a name: OWNER/NAME, if OWNER is no folder here."""
    return bool(_HUB_NAME.fullmatch(given)) and not ("/" in given and Path(given).parent.is_dir())


def _nearest_beside(path: Path) -> str:
    if (folder := path.parent).is_dir():
        return nearest(path.name, [each.name for each in folder.iterdir()])
    # run/quickstart -> runs/quickstart
    return nearest(str(path), map(str, folder.parent.glob(f"*/{glob.escape(path.name)}")))


@cache  # a command checks its model and loads it
def _download(name: str, hint: str) -> Path:
    """Fetch weights, config and tokenizer of a hub name into Hugging Face's cache."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415  slow, and rarely needed
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        # pytorch_model.bin, of the same size, is fetched only where there is nothing else
        folder = Path(snapshot_download(name, allow_patterns=list(_HUB_SAFETENSORS)))
        if not any((folder / each).is_file() for each in WEIGHT_FILES):
            folder = Path(snapshot_download(name, allow_patterns=list(_HUB_BIN)))
        return folder
    except LocalEntryNotFoundError:
        why = "cannot be reached, and its cache has no such model"
        why += hint or "; check the name, or give a folder or a run, such as runs/quickstart"
    except (HfHubHTTPError, OSError, ValueError) as error:
        why = f"refused it ({told(error).splitlines()[0]})"
        why += hint or "; hub names look like google-bert/bert-base-uncased"
    raise CheckpointError(f"{name}: no such folder, and the Hugging Face hub {why}")
