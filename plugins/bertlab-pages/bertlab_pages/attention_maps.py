"""Attention maps of an encoder: recomputed from the queries and keys that it computes itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertlab.api import EvaluationError, Tokenizer
from bertlab.extend import SelfAttention
from bertlab_pages.layer_states import Batches, ReadModel, layer_states

TARGETS = ("cls", "sep", "next", "previous", "self", "same_token")
FIGURES = ("entropy", *TARGETS)


@dataclass
class _Call:
    """A layer, and its queries, keys and values ``(T, 3 * H)`` of a batch; rows may follow."""

    layer: SelfAttention
    qkv: Tensor


def attention_layers(model: ReadModel) -> list[SelfAttention]:
    """Return the layers whose attention can be recomputed from their queries and keys.

    Raises:
        EvaluationError: there is none, or one computes attention in a way of its own.
    """
    layers = [each for each in model.encoder.modules() if isinstance(each, SelfAttention)]
    as_they_are = all(type(each).forward is SelfAttention.forward for each in layers)
    if not layers or not as_they_are or len({each.num_attention_heads for each in layers}) > 1:
        raise EvaluationError(
            f"{model.source}: the attention of its {type(model.encoder).__name__} cannot be read; "
            "expected layers of bertlab.encoders.bert.SelfAttention, or of a subclass that leaves "
            "its forward as it is, with as many heads each"
        )
    return layers


def attention_maps(
    model: ReadModel,
    inputs: Sequence[tuple[list[int], list[int]]],
    batch_tokens: int,
    track: Callable[[list[list[int]]], Batches] = iter,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of each of N sequences and its maps, longest sequence first.

    Args:
        model: in evaluation mode.
        inputs: ids and segment ids of each sequence, special tokens included.
        batch_tokens: tokens that are encoded at a time.
        track: as of :func:`layer_states`.

    Yields:
        number: of a sequence of S tokens.
        maps: ``(layers, heads, S, S)`` float32 probabilities; ``[..., i, j]`` is how much token i
            attends to token j.

    Raises:
        EvaluationError: as of :func:`attention_layers` and :func:`layer_states`.
    """
    calls: list[_Call] = []  # a layer whose weights are shared is called several times

    def keep(layer: nn.Module, given: tuple[Any, ...], output: object) -> None:
        del output
        assert isinstance(layer, SelfAttention)
        hidden, _, _, *positions = given  # of its forward
        calls.append(_Call(layer, layer.queries_keys_values(hidden, *positions)))

    layers = attention_layers(model)
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    ids, segments = [each for each, _ in inputs], [each for _, each in inputs]
    try:
        # what a run has compiled knows nothing of the hooks
        with torch.compiler.set_stance("force_eager"):
            for states in layer_states(model, ids, batch_tokens, segments, track):
                borders = pairwise(states.batch.cu_seqlens.tolist())
                for number, (start, end) in zip(states.numbers, borders, strict=True):
                    yield (
                        number,
                        torch.stack([_probabilities(each, start, end) for each in calls]),
                    )
                calls.clear()
    finally:
        for hook in hooks:
            hook.remove()


def _probabilities(call: _Call, start: int, end: int) -> Tensor:
    """Return the ``(heads, S, S)`` map of the tokens from ``start`` to ``end``."""
    heads, qkv = call.layer.num_attention_heads, call.qkv
    # (S, 3 * A * d) -> (S, 3, A, d) -> (3, A, S, d)
    parts = qkv[start:end].float().view(end - start, 3, heads, -1).permute(1, 2, 0, 3)
    query, key, _ = parts.unbind()
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    places = torch.arange(end - start, device=scores.device)
    return softmax(scores, call.layer.keys_seen(places))


def softmax(scores: Tensor, seen: Tensor) -> Tensor:
    """Return the attention of ``(..., S, S)`` scores, by queries and the keys that they see."""
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def target_masks(ids: Tensor, tokenizer: Tokenizer) -> Tensor:
    """Return ``(6, S, S)`` bool: is token j what is asked of token i, for each of ``TARGETS``?

    Args:
        ids: ``(S,)`` int64 ids, special tokens included.
        tokenizer: knows which of them are special.
    """
    size = (len(ids), len(ids))
    itself = torch.eye(len(ids), dtype=torch.bool, device=ids.device)
    special = torch.from_numpy(tokenizer.special_mask).to(ids.device)[ids]
    found = {
        "cls": (ids == tokenizer.cls_id).expand(size),
        "sep": (ids == tokenizer.sep_id).expand(size),
        # row i of itself is 1 at i; row i of next is 1 at i + 1, and the last row is empty
        "next": itself.roll(-1, 0).triu(),
        "previous": itself.roll(1, 0).tril(),
        "self": itself,
        "same_token": (ids[:, None] == ids) & ~itself & ~special,
    }
    return torch.stack([found[name] for name in TARGETS])


def head_figures(maps: Tensor, targets: Tensor) -> NDArray[np.float64]:
    """Return ``(7, layers, heads)`` float64 of one row, in the order of ``FIGURES``.

    Args:
        maps: ``(layers, heads, S, S)`` float32 probabilities.
        targets: ``(6, S, S)`` bool as of :func:`target_masks`.
    """
    entropy = torch.special.entr(maps).sum(-1).mean(-1)
    shares = torch.einsum("lhij,tij->tlh", maps, targets.to(maps.dtype)) / maps.shape[-1]
    figures: NDArray[np.float64] = torch.cat([entropy[None], shares]).double().cpu().numpy()
    return figures
