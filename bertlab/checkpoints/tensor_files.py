"""Files of tensors, read without running anything in them."""

import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from bertlab.errors import BertlabError, CheckpointError, DamagedCheckpointError, kind_of
from bertlab.files import check_memory, read_object

TORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
INDEX_SUFFIX = ".index.json"
_FOUND_TEXT = "found text in place of tensors; copy or download it again, or name a run's folder"
_LEGACY_PICKLES = 5  # at the start of files of the old format
_HOLDS_CODE = (
    "holds pickled code or objects ({}) beside tensors, refused and not run; save the state_dict "
    "alone, best as safetensors"
)
_MAKES_VALUES = re.compile(  # what the pickle of a tensor or a plain value may call
    r"collections |_codecs encode$|(__builtin__|builtins) (set|complex)$|torch (Size|device)$|"
    r"torch\._(utils|tensor) _rebuild_|torch\.nn\.parameter Parameter$|torch\.serialization _get_"
)
_MOST_VALUES = 10_000_000
_BYTES_OF_OBJECT = 72  # of memory, at most, that one byte of a pickle takes: an empty mapping
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
    words = f"{path}: found suffix {path.suffix!r}, expected .safetensors"
    raise CheckpointError(f"{words}, {INDEX_SUFFIX} or one of {', '.join(TORCH_SUFFIXES)}")


def refuse_pipe(path: Path) -> None:
    """Raise CheckpointError for a pipe, a socket or a device, whose reader may wait for ever."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise CheckpointError(f"{path}: is a pipe, a socket or a device, expected a file")


def _first_bytes(path: Path) -> bytes:
    """Return the start of a file; refuse what is no file, empty, or a stand-in for one."""
    refuse_pipe(path)
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
        words = f"{path}: found a web page in place of the tensors, as a failed download leaves it"
        raise CheckpointError(f"{words}; download the file itself")
    return head


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        words = f"{path}: not a whole safetensors file ({_first_line(error)}); it may be truncated"
        raise DamagedCheckpointError(f"{words}, copy or download it again") from None


def load_torch_file(path: Path) -> object:
    """Return what a PyTorch file holds, read as weights only: nothing in it is executed."""
    # torch cannot map the old format
    head = _first_bytes(path)
    mmap = head.startswith(_ZIP_MAGIC)
    if mmap:
        _check_sums(path)
    try:
        if not mmap:
            with path.open("rb") as file:
                for _ in range(_LEGACY_PICKLES):
                    _check_pickle(path, file, path.stat().st_size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickle protocols and storages
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except BertlabError:
        raise
    except Exception as error:  # hostile bytes can raise any error
        is_text = head.isascii() and b"\0" not in head  # such as a run's config.yaml
        told = _FOUND_TEXT if is_text else _refusal(error)
        raise CheckpointError(f"{path}: {told}") from None


def _check_sums(path: Path) -> None:
    """Raise CheckpointError if a record of a zip archive is not what its checksum says."""
    # torch does not look: a flipped bit would be a wrong weight
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
            if unpacked > path.stat().st_size:  # torch packs nothing: this is made to fill memory
                words = f"{path}: a packed archive, which unpacks to {unpacked:,} bytes"
                raise DamagedCheckpointError(f"{words}; torch writes them unpacked")
            for each in archive.infolist():
                if each.filename.endswith("data.pkl"):
                    taken, stored = _BYTES_OF_OBJECT * each.file_size, unpacked // 64
                    check_memory(path, "what is in it beside tensors", taken, stored)
                    with archive.open(each) as file:
                        _check_pickle(path, file, each.file_size)
            damaged = archive.testzip()
    except BertlabError:
        raise
    except Exception as error:  # hostile bytes can raise any error, as zlib's own
        words = f"{path}: not a whole checkpoint ({_first_line(error)}); it may be truncated"
        raise DamagedCheckpointError(f"{words}, copy or download it again") from None
    if damaged is not None:
        raise DamagedCheckpointError(
            f"{path}: damaged: {damaged} does not have its checksum; copy or download it again"
        )


def _check_pickle(path: Path, file: IO[bytes], size: int) -> None:
    """Refuse a pickle that would take more time or memory than its bytes, before torch reads it."""
    # t = (t, t) 60 times is 2**60 values for whatever hashes, copies or prints it
    left = 4 * size + 65_536  # values and characters that are hashed, or given to functions
    for kind, parts in _steps(file):
        waiting = [] if "APPEND" in kind else parts[-1:]
        if "SETITEM" in kind:
            waiting = [key for key in parts[1::2] if isinstance(key, list)]
        elif kind in ("REDUCE", "NEWOBJ"):
            name = parts[0] if isinstance(parts[0], str) else type(parts[0]).__name__
            if not _MAKES_VALUES.match(name):
                raise CheckpointError(f"{path}: {_HOLDS_CODE.format(name.replace(' ', '.'))}")
        while waiting and left >= 0:
            each = waiting.pop()
            left -= len(each) if isinstance(each, list | str) else 1
            waiting += each if isinstance(each, list) else []
        if left < 0:
            raise CheckpointError(f"{path}: few bytes in it stand for many values, in each other")


def _steps(file: IO[bytes]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the steps of a pickle that use values, and these; torch refuses where this ends."""
    # values are made as torch does, but nothing is called; mappings are lists: no key is hashed
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    for opcode, given, _ in pickletools.genops(file):
        kind, before = opcode.name, opcode.stack_before
        if kind == "MARK":
            marks.append(len(stack))
        elif "PUT" in kind:
            memo[given] = stack[-1]
        elif "GET" in kind:
            stack.append(memo[given])
        elif not before:  # it makes a value
            stack.append([] if "EMPTY" in kind else given)
        else:
            start = len(stack) - len(before)
            if pickletools.markobject in before:  # [1, 2, "(", 3, 4]: APPENDS takes [2, 3, 4]
                start = marks.pop() - before.index(pickletools.markobject)
            parts = stack[start:]
            del stack[start:]
            if "TUPLE" in kind:
                stack.append(parts)
                continue
            if kind in ("REDUCE", "NEWOBJ", "BINPERSID"):
                stack.append([])
            elif kind in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD"):
                parts[0].extend(parts[1:])
                stack.append(parts[0])
            else:
                return
            yield kind, parts


def _read_torch(path: Path) -> dict[str, Tensor]:
    content = load_torch_file(path)
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{path}: found {kind_of(content)}, expected tensors by name")
    for name, value in content.items():
        _check_tensor(path, name, value)
    return dict(content)  # without the _metadata that torch hangs on its OrderedDict


def check_tensors(path: Path, content: object) -> None:
    """Refuse tensors larger than the file, and few values in each other that stand for many."""
    waiting: list[tuple[object, Any]] = [("", [content])]
    found = 0
    while waiting:
        above, inside = waiting.pop()
        found += len(inside)
        if found > _MOST_VALUES:
            raise CheckpointError(f"{path}: stands for over {_MOST_VALUES:,} values, in each other")
        for each in inside:
            name, value = (each, inside[each]) if isinstance(inside, Mapping) else (above, each)
            if isinstance(value, Tensor):
                _check_tensor(path, str(name)[:80], value)
            elif isinstance(value, Mapping | list | tuple | set):
                waiting.append((name, value))


def _check_tensor(path: Path, name: object, value: object) -> None:
    if not isinstance(name, str) or not isinstance(value, Tensor):
        raise CheckpointError(f"{path}: {name!r} is {kind_of(value)}, expected tensors by name")
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
        return _HOLDS_CODE.format(unsafe[1])
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
        # "../secret.bin", "C:secret.bin"; an index could name itself without end
        is_odd = shard in ("", ".", "..") or re.search(r"[/\\:\0]", shard)
        if is_odd or shard.endswith(INDEX_SUFFIX):
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


_MAX_LISTED = 20
# layers.0.x and encoder.layers.11.x, not sublayers.0.x, and not tasks.mine.layers.0.x
_LAYER = re.compile(r"^(?!tasks\.)(?:.*\.)?layers\.(\d+)\.")
_SIZE_OF = (  # end of a tensor's name, the dimension, the config key that decides it
    ("token_embedding.weight", 0, "vocab_size"),
    ("token_embedding.weight", 1, "hidden_size"),
    ("position_embedding.weight", 0, "max_position_embeddings"),
    ("token_type_embedding.weight", 0, "type_vocab_size"),
    ("intermediate.weight", 0, "intermediate_size"),
)
_POSITION_ADVICE = (
    "A position table is not cut or stretched: two-phase pre-training should keep "
    "max_position_embeddings at 512 from the start and change only the sequence length."
)


@dataclass
class LoadReport:
    """What became of each tensor, by name, and sentences for the user."""

    loaded: list[str]
    newly_initialized: list[str]  # that the checkpoint lacks, and may lack
    unused: list[str]  # that the module does not have
    notes: list[str] = field(default_factory=list)


def load_matching(
    module: nn.Module, state: Mapping[str, Tensor], source: str, allow_missing: Sequence[str] = ()
) -> LoadReport:
    """Copy a checkpoint's tensors into a module of the same shapes, or change nothing.

    Returns:
        What was loaded, newly initialised and unused.
    """
    own = module.state_dict()
    differing = [
        f"{name}: checkpoint {shape_of(state[name])}, model {shape_of(own[name])}"
        for name in own
        if name in state and shape_of(state[name]) != shape_of(own[name])
    ]
    layers = {count_layers(state), count_layers(own)} - {None}
    if differing or len(layers) > 1:
        raise CheckpointError(_shape_message(differing, state, own, source))
    absent = [name for name in own if name not in state]
    missing = [name for name in absent if not name.startswith(tuple(allow_missing))]
    if missing:
        raise CheckpointError(
            f"{source}: lacks {len(missing)} of the model's {len(own)} tensors:\n"
            + list_limited(missing)
        )
    # only now that nothing can be refused any more: a module is never half old, half new
    with torch.no_grad():
        for name, tensor in own.items():  # these share memory with the module's
            if name in state:
                tensor.copy_(state[name])  # converts dtype and device
    return LoadReport(
        loaded=[name for name in own if name in state],
        newly_initialized=absent,
        unused=[name for name in state if name not in own],
    )


def list_limited(lines: Sequence[str], limit: int = _MAX_LISTED) -> str:
    """Return the lines, indented, at most ``limit`` of them and how many more there are."""
    shown = [f"  {line}" for line in lines[:limit]]
    if len(lines) > limit:
        shown.append(f"  … and {len(lines) - limit} more")
    return "\n".join(shown)


def shape_of(tensor: Tensor) -> str:
    """Describe what must be equal for a tensor to be copied: its shape, and float or not."""
    shape = str(tuple(tensor.shape))
    return shape if tensor.is_floating_point() else f"{shape} {str(tensor.dtype)[6:]}"  # (3,) int64


def count_layers(state: Mapping[str, Tensor]) -> int | None:
    """Count the layers; None where a state has none at all, such as a head's."""
    indices = {match[1] for name in state if (match := _LAYER.search(name))}
    return len(indices) or None


def _shape_message(
    differing: Sequence[str], state: Mapping[str, Tensor], own: Mapping[str, Tensor], source: str
) -> str:
    checkpoint, model = _sizes(state), _sizes(own)
    keys = [key for key in checkpoint if key in model and checkpoint[key] != model[key]]
    lines = [f"{source}: does not fit the model"]
    if keys:
        settings = ", ".join(f"{key}: {checkpoint[key]} (not {model[key]})" for key in keys)
        lines[0] += f", whose encoder would match with {settings}"
        lines.append("A checkpoint brings its sizes: the config may leave these keys out.")
    if "max_position_embeddings" in keys:
        lines.append(_POSITION_ADVICE)
    if differing:
        lines.append(f"{len(differing)} tensors differ in shape:")
        # the keys tell it all, and any one of them may change every tensor
        lines.append(list_limited(differing, 3 if keys else _MAX_LISTED))
    return "\n".join(lines)


def _sizes(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Infer the config keys that a state's shapes show."""
    sizes: dict[str, int] = {}
    for ending, dimension, key in _SIZE_OF:
        for name, tensor in state.items():
            # encoder.token_embedding.weight, not encoder.my_token_embedding.weight
            if ("." + name).endswith("." + ending) and tensor.dim() > dimension:
                sizes.setdefault(key, tensor.shape[dimension])
    layers = count_layers(state)
    if layers is not None:
        sizes["num_hidden_layers"] = layers
    return sizes
