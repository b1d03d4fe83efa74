"""What a run changed of its base, saved alone: a few megabytes beside the base, several on one.

``BASE/adapters/NAME.adapter`` holds the tensors that the base lacks, config, tokenizer and labels,
and the digest of the base's weights. Read together, they give the run's checkpoint again.
"""

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertlab import CheckpointError, Pretrained, PretrainedModel
from bertlab.extend import (
    DamagedCheckpointError,
    check_nothing_leads_out,
    check_tensors,
    explain_damage,
    find_checkpoint,
    is_of_type,
    load_torch_file,
    make_folder,
    model_of,
    read_pretrained,
    replacing,
)
from bertlab_modern.adapter_command import FOLDER, check_target, no_run
from bertlab_modern.lora import KEPT, LoRA

_VERSION, _KEY = 1, "bertlab_adapter"
_BASE, _A, _B = KEPT  # behind the name of a linear layer
_REST = ("bertlab", "global_step")  # of a checkpoint: config, tokenizer, labels


def save_adapter(run: str | Path, base: str | Path, name: str) -> Path:
    """Save what a run has beside its base as ``BASE/adapters/NAME.adapter``.

    Args:
        run: run directory or checkpoint: of ``model.adapter: lora``, or with frozen layers.
        base: folder of the run or Hugging Face model that it began with.
        name: of the adapter.

    Returns:
        The file.

    Raises:
        CommandError: the base is no folder, or the name none of a file.
        OutputError: a link there leads out of the base.
        CheckpointError: the run began with other weights.
    """
    target, folder = check_target(base, name), Path(base).expanduser()
    check_nothing_leads_out(folder, FOLDER)
    file = find_checkpoint(run)
    if file is None:
        raise no_run(run)
    trained, start = read_pretrained(str(file)), read_pretrained(str(folder))
    merged = sorted(each.removesuffix(_BASE) for each in trained.state if each.endswith(_BASE))
    kept = _beside(trained, start, merged)
    content: Any = load_torch_file(file)
    with explain_damage(file):
        rest = {key: content[key] for key in _REST}
        scale = 0.0
        if merged:
            assert trained.config is not None
            adapter = trained.config["model"]["adapter"]
            scale = LoRA(adapter["rank"], adapter["alpha"]).scale
    whole: dict[str, Any] = {
        _KEY: _VERSION,
        "base": start.weights_digest(),
        "scale": scale,
        "merged": merged,
        # of the run's state, in its order
        "names": [each for each in trained.state if not each.endswith((_BASE, _A, _B))],
        "state_dict": kept,
        "rest": rest,
    }
    make_folder(target.parent)
    with replacing(target, durable=True) as written:
        torch.save(whole, written)
    return target


def _beside(trained: Pretrained, start: Pretrained, merged: list[str]) -> dict[str, Tensor]:
    """Return the tensors of a run that its base lacks."""
    differing = [
        each for each in merged
        if not _is_same(start.state.get(f"{each}weight"), trained.state[f"{each}{_BASE}"])
    ]  # fmt: skip
    left_out = {f"{each}{part}" for each in merged for part in (_BASE, "weight")}
    kept = {
        name: tensor.clone()  # not the file that it is mapped from
        for name, tensor in trained.state.items()
        if name not in left_out and not _is_same(start.state.get(name), tensor)
    }
    encoder = {name for name in trained.state if name.startswith("encoder.")}
    if differing or encoder <= kept.keys():
        named = f"{differing[0]}weight" if differing else "all of the encoder"
        raise CheckpointError(
            f"{trained.source}: {named} is not as in {start.source}; expected the model that the "
            "run began with (model.init_from), and an adapter or frozen layers"
        )
    return kept


def _is_same(base: Tensor | None, tensor: Tensor) -> bool:
    """Whether a tensor of a base, of any precision, is that of a run."""
    if base is None or base.shape != tensor.shape:
        return False
    return torch.equal(base.to(tensor.dtype), tensor)


def load_adapter(file: str | Path, base: str | Path | None = None) -> PretrainedModel:
    """Load an adapter with its base, to use it; see ``bertlab.load``.

    Args:
        file: ``BASE/adapters/NAME.adapter``.
        base: folder of the base, if the file lies elsewhere.

    Raises:
        CheckpointError: it is the adapter of another base, or damaged.
    """
    with joined(Path(file), base) as checkpoint:
        return model_of(read_pretrained(str(checkpoint)))


@contextmanager
def joined(file: Path, base: str | Path | None = None) -> Iterator[Path]:
    """Write an adapter with its base as a checkpoint, which is there within the block."""
    with tempfile.TemporaryDirectory(prefix="bertlab-adapter-") as folder:
        target = Path(folder) / f"{file.stem}.ckpt"
        join_adapter(file, target, base)
        yield target


def join_adapter(file: Path, target: Path, base: str | Path | None = None) -> None:
    """Write an adapter with its base as a checkpoint, which all commands read.

    Raises:
        CheckpointError: it is the adapter of another base, or damaged.
    """
    content = _read(file)
    if base is None and file.resolve().parent.name != FOLDER:
        raise CheckpointError(f"{file}: expected the adapter in the folder {FOLDER} of its base")
    start = read_pretrained(str(file.resolve().parent.parent if base is None else base))
    if (found := start.weights_digest()) != content["base"]:
        raise CheckpointError(
            f"{file}: the adapter of another base: its weights are {content['base'][:12]}, those of"
            f" {start.source} {found}"
        )
    state, kept = {}, content["state_dict"]
    for name in content["names"]:
        linear = name.removesuffix("weight")
        if name.endswith("weight") and linear in content["merged"]:
            state[name] = _merged(file, start.state.get(name), kept, linear, content["scale"])
        elif name in kept or name in start.state:
            state[name] = kept.get(name, start.state.get(name))
        else:
            raise DamagedCheckpointError(f"{file}: a damaged adapter: {name[:80]} is missing")
    with replacing(target) as written:
        torch.save(
            {**{key: content["rest"].get(key) for key in _REST}, "state_dict": state}, written
        )


def _merged(
    file: Path, weight: Tensor | None, kept: Mapping[str, Tensor], linear: str, scale: float
) -> Tensor:
    """Return ``W + scale · B A``."""
    a, b = kept.get(f"{linear}{_A}"), kept.get(f"{linear}{_B}")
    if weight is not None and a is not None and b is not None:
        are_matrices = a.is_floating_point() and a.dtype == b.dtype and a.dim() == b.dim() == 2
        # (N, rank) and (rank, M) for (N, M)
        if are_matrices and (*b.shape, a.shape[1]) == (len(weight), len(a), *weight.shape[1:]):
            found: Tensor = weight.to(a.dtype) + scale * (b @ a)
            return found
    raise DamagedCheckpointError(
        f"{file}: a damaged adapter: {linear[:80]}{_A} and {_B} are missing, or do not fit "
        "the base's weight"
    )


def _read(file: Path) -> dict[str, Any]:
    """Return what a file holds, which may come from anywhere; nothing in it is executed."""
    content = load_torch_file(file)
    if not isinstance(content, dict) or content.get(_KEY) != _VERSION:
        raise CheckpointError(f"{file}: not an adapter that this bertlab reads")
    state: Any = content.get("state_dict")
    scale = content.get("scale")
    fits = {
        "base": isinstance(content.get("base"), str),
        "scale": isinstance(scale, float) and math.isfinite(scale),
        "merged": is_of_type(content.get("merged"), list[str]),
        "names": is_of_type(content.get("names"), list[str]),
        "state_dict": is_of_type(state, dict[str, Tensor])
        and all(each.layout == torch.strided for each in state.values()),
        "rest": is_of_type(content.get("rest"), dict[str, object]),
    }
    if wrong := [key for key, each in fits.items() if not each]:
        raise DamagedCheckpointError(f"{file}: a damaged adapter: {', '.join(wrong)}")
    check_tensors(file, content)
    return content
