"""Matching the tensors of a checkpoint to a module, all or nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from bertlab.errors import CheckpointError

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
    """What became of each tensor.

    Attributes:
        loaded: names that the module took from the checkpoint.
        newly_initialized: names of the module that the checkpoint lacks, and may lack.
        unused: names of the checkpoint that the module does not have.
        notes: sentences for the user, for example why a head starts anew.
    """

    loaded: list[str] = field(default_factory=list)
    newly_initialized: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_matching(
    module: nn.Module,
    state: Mapping[str, Tensor],
    source: str,
    allow_missing: Sequence[str] = (),
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
