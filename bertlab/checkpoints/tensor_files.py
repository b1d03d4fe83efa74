"""Files of tensors, read without running anything in them."""

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bertlab.errors import CheckpointError, DamagedCheckpointError
from bertlab.files.reading import read_object

TORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
INDEX_SUFFIX = ".index.json"
_FOUND_TEXT = (
    "found text in place of tensors; copy or download it again, or name a run by its folder"
)
_ZIP_MAGIC = b"PK\x03\x04"  # torch.save writes zip archives since 1.6, pickles before


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read every tensor of a file, on the CPU, memory-mapped where the format allows it."""
    _first_bytes(path)
    if path.name.endswith(INDEX_SUFFIX):
        return _read_shards(path)
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in TORCH_SUFFIXES:
        return _read_torch(path)
    raise CheckpointError(
        f"{path}: found suffix {path.suffix!r}, expected .safetensors, {INDEX_SUFFIX} or one of "
        f"{', '.join(TORCH_SUFFIXES)}"
    )


def _first_bytes(path: Path) -> bytes:
    """Return the start of a file; refuse what is no file, empty, or a stand-in for one."""
    try:
        with path.open("rb") as file:
            head = file.read(512)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if not head:
        raise DamagedCheckpointError(f"{path}: the file is empty; copy or download it again")
    if head.startswith(b"version https://git-lfs"):
        raise CheckpointError(
            f"{path}: found a Git LFS pointer in place of the tensors; run `git lfs pull` in its "
            "repository, or download the file itself"
        )
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise CheckpointError(
            f"{path}: found a web page in place of the tensors, as a failed download leaves it; "
            "download the file itself"
        )
    return head


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DamagedCheckpointError(
            f"{path}: not a whole safetensors file ({_first_line(error)}); it may be truncated, "
            "copy or download it again"
        ) from None


def load_torch_file(path: Path) -> object:
    """Return what a PyTorch file holds, read as weights only: nothing in it is executed."""
    # torch cannot map the old format
    head = _first_bytes(path)
    mmap = head.startswith(_ZIP_MAGIC)
    if mmap:
        _check_sums(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickle protocols and storages
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # hostile bytes can raise any error
        is_text = head.isascii() and b"\0" not in head  # such as a run's config.yaml
        told = _FOUND_TEXT if is_text else _refusal(error)
        raise CheckpointError(f"{path}: {told}") from None


def _check_sums(path: Path) -> None:
    """Raise CheckpointError if a record of a zip archive is not what its checksum says.

    Torch does not look: a flipped bit would be a wrong weight.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
            if unpacked > path.stat().st_size:  # torch packs nothing: this is made to fill memory
                raise DamagedCheckpointError(
                    f"{path}: a packed archive, which unpacks to {unpacked:,} bytes; torch writes "
                    "them unpacked"
                )
            damaged = archive.testzip()
    except DamagedCheckpointError:
        raise
    except Exception as error:  # hostile bytes can raise any error, as zlib's own
        raise DamagedCheckpointError(
            f"{path}: not a whole checkpoint ({_first_line(error)}); it may be truncated, copy or "
            "download it again"
        ) from None
    if damaged is not None:
        raise DamagedCheckpointError(
            f"{path}: damaged: {damaged} does not have its checksum; copy or download it again"
        )


def _read_torch(path: Path) -> dict[str, Tensor]:
    content = load_torch_file(path)
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(
            f"{path}: found a {type(content).__name__}, expected a dict of tensors by name"
        )
    for name, value in content.items():
        _check_tensor(path, name, value)
    return dict(content)  # without the _metadata that torch hangs on its OrderedDict


def check_tensors(path: Path, content: object) -> None:
    """Refuse tensors that are larger than the file, anywhere in what it holds."""
    waiting: list[tuple[object, object]] = [("", content)]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Tensor):
            _check_tensor(path, str(name)[:80], value)
        elif isinstance(value, Mapping | list | tuple | set) and id(value) not in seen:
            seen.add(id(value))  # once, as it may hold itself
            inside = value.items() if isinstance(value, Mapping) else ((name, v) for v in value)
            waiting += inside


def _check_tensor(path: Path, name: object, value: object) -> None:
    if not isinstance(name, str) or not isinstance(value, Tensor):
        raise CheckpointError(
            f"{path}: {name!r} is a {type(value).__name__}, expected tensors by name only"
        )
    if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
        raise CheckpointError(
            f"{path}: {name!r} is a sparse, quantized or empty-device tensor, expected a dense one"
        )
    # a few bytes can declare a tensor of terabytes that fills the memory once it is copied
    # zeros(1).expand(10**12): 4 bytes of storage for 4 TB
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise CheckpointError(
            f"{path}: {name!r} declares shape {tuple(value.shape)} but the file holds only "
            f"{value.untyped_storage().nbytes()} bytes of it"
        )


def _refusal(error: Exception) -> str:
    """Say in one line why torch did not load a file."""
    text = str(error)
    # "Trying to load unsupported GLOBAL posix.system whose module posix is blocked"
    unsafe = re.search(r"GLOBAL ([\w.]+)", text)
    if unsafe:
        return (
            f"holds pickled code or objects ({unsafe[1]}) beside tensors, refused and not run; "
            "save the state_dict alone, best as safetensors"
        )
    if "legacy .tar format" in text:
        return (
            "is in PyTorch's tar format of before 2017, which cannot be read as weights only; "
            "save it again with a newer PyTorch"
        )
    if isinstance(error, pickle.UnpicklingError):
        return "not a PyTorch file of tensors, or a damaged one; copy or download it again"
    return f"not a whole PyTorch file ({_first_line(error)}); copy or download it again"


def _first_line(error: Exception) -> str:
    """Return the first sentence of an error's text, or the error's name."""
    text = str(error).strip()
    return text.splitlines()[0].split(". ")[0][:120] if text else type(error).__name__


def _read_shards(index: Path) -> dict[str, Tensor]:
    try:
        weight_map = read_object(index, {"weight_map": dict})["weight_map"]
        shards = sorted(set(weight_map.values()))
        names_are_text = all(isinstance(shard, str) for shard in shards)
    except (OSError, ValueError, TypeError):
        names_are_text = False
    if not names_are_text or not shards:
        raise CheckpointError(
            f'{index}: expected JSON with "weight_map": {{tensor name: file name}}'
        )
    for shard in shards:
        # "../secret.bin", "C:secret.bin"
        if shard in ("", ".", "..") or re.search(r"[/\\:\0]", shard) or _is_index(shard):
            raise CheckpointError(
                f"{index}: names the file {shard!r}, expected the plain name of a tensor file in "
                "the same folder"
            )
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        tensors |= read_tensors(index.parent / shard)
    for name, shard in weight_map.items():
        if name not in tensors:
            raise CheckpointError(f"{index}: tensor {name!r} is not in {shard}, as it should be")
    return tensors


def _is_index(shard: str) -> bool:
    """Tell whether a shard is itself an index, which could name itself without end."""
    return shard.endswith(INDEX_SUFFIX)
