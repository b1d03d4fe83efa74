"""ModernBERT as ``transformers`` keeps it: ``config.json`` and names of tensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bertlab import CheckpointError
from bertlab.api import Encoder
from bertlab.extend import HeadLayout, HuggingFaceForm, check_only, real_number, whole_number

if TYPE_CHECKING:
    from bertlab_modern.modern import ModernEncoder

# bertlab's argument: key, and transformers' default
_SIZES = {
    "vocab_size": ("vocab_size", 50368),
    "hidden_size": ("hidden_size", 768),
    "num_hidden_layers": ("num_hidden_layers", 22),
    "num_attention_heads": ("num_attention_heads", 12),
    "intermediate_size": ("intermediate_size", 1152),
    "max_position_embeddings": ("max_position_embeddings", 8192),
    "local_window": ("local_attention", 128),
}
_REALS = {
    "layer_norm_eps": ("norm_eps", 1e-5),
    "initializer_range": ("initializer_range", 0.02),
    "attention_probs_dropout_prob": ("attention_dropout", 0.0),
}
_FLAGS = {
    "attention_bias": "attention_bias",
    "feed_forward_bias": "mlp_bias",
    "norm_bias": "norm_bias",
}
_ACTIVATIONS = {"gelu": "geglu", "silu": "swiglu"}
_ONLY: dict[str, tuple[object, ...]] = {
    "hidden_activation": ("gelu", "silu"),
    "classifier_activation": ("gelu",),
    "tie_word_embeddings": (True,),
    **dict.fromkeys((*_FLAGS.values(), "classifier_bias"), (False, True)),
    "decoder_bias": (True, False),
}
_WHY = "bertlab's encoder would compute something else from these weights"
_THETAS = {
    "rope_theta": ("full_attention", "global_rope_theta", 160_000.0),
    "local_rope_theta": ("sliding_attention", "local_rope_theta", 10_000.0),
}
_NORMS = ("embeddings.norm", "final_norm")
# of one layer; the first one's attention has no norm
_LAYER_NORMS = {"attention_norm": "attn_norm", "feed_forward_norm": "mlp_norm"}
_LAYER_LINEARS = {
    "attention.qkv": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "intermediate": "mlp.Wi",
    "output": "mlp.Wo",
}
_HEAD = {
    "dense.weight": "head.dense.weight",
    "dense.bias": "head.dense.bias",
    "layer_norm.weight": "head.norm.weight",
    "layer_norm.bias": "head.norm.bias",
}


class ModernBertForm(HuggingFaceForm):
    """ModernBERT: ``ModernBertModel``, and the classes of masked LM and classification.

    ``transformers`` calls the head in front of a classifier as that of masked LM: a pooler of
    bertlab takes its weights from it where there is no other, as ``transformers`` does. Biases that
    a model does not have are zeros in bertlab's heads; they are written where one is not zero.
    """

    model_type = "modernbert"
    prefix = "model."
    word_embedding = "embeddings.tok_embeddings.weight"
    layers = "layers."
    parts = ("embeddings.", "layers.", "final_norm.")
    head_parts = ("head.", "decoder.")
    decoder = "decoder"
    decoder_bias = "decoder.bias"
    architectures: ClassVar[Mapping[frozenset[str], str]] = {
        frozenset({"mlm"}): "ModernBertForMaskedLM",
        frozenset[str](): "ModernBertModel",
    }
    heads: ClassVar[Mapping[str, HeadLayout]] = {
        "ModernBertForSequenceClassification": HeadLayout(
            "BertForSequenceClassification", "classifier", has_pooler=True
        ),
        "ModernBertForMultipleChoice": HeadLayout(
            "BertForMultipleChoice", "classifier", has_pooler=True, rows=1
        ),
    }

    def arguments(self, content: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Keys that lack have the values that ``transformers`` gives them."""
        check_only(path, content, _ONLY, _WHY)
        sizes = {
            ours: whole_number(path, key, content.get(key, default), 1)
            for ours, (key, default) in _SIZES.items()
        }
        reals = {
            ours: real_number(path, key, content.get(key, default))
            for ours, (key, default) in _REALS.items()
        }
        dropouts = [
            real_number(path, key, content.get(key, 0.0))
            for key in ("embedding_dropout", "mlp_dropout")
        ]
        pad_token_id = content.get("pad_token_id", 50283)
        return {
            **sizes,
            **reals,
            **{ours: content.get(key, False) for ours, key in _FLAGS.items()},
            **_thetas(content, path),
            "hidden_dropout_prob": max(dropouts),
            "global_every": _global_every(content, sizes["num_hidden_layers"], path),
            "feed_forward": _ACTIVATIONS[content.get("hidden_activation", "gelu")],
            "pad_token_id": whole_number(path, "pad_token_id", pad_token_id or 0, 0),
        }

    def config(self, encoder: "ModernEncoder", architecture: str) -> dict[str, Any]:
        """As ``transformers`` 5 writes it, with the keys of older ones beside."""
        options = encoder.options
        activation = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
        every = encoder.global_every
        kinds = ("full_attention", "sliding_attention")
        thetas = (encoder.rope_theta, encoder.local_rope_theta)
        return {
            "architectures": [architecture],
            "model_type": self.model_type,
            "dtype": str(encoder.token_embedding.weight.dtype).removeprefix("torch."),
            **{key: getattr(encoder, ours) for ours, (key, _) in (_SIZES | _REALS).items()},
            **{key: getattr(options, ours) for ours, key in _FLAGS.items()},
            "embedding_dropout": encoder.hidden_dropout_prob,
            "mlp_dropout": encoder.hidden_dropout_prob,
            "hidden_activation": activation[options.feed_forward],
            "classifier_activation": "gelu",
            "classifier_bias": False,
            "classifier_dropout": 0.0,
            "classifier_pooling": "cls",
            "decoder_bias": True,
            "global_attn_every_n_layers": every,
            "layer_types": [kinds[n % every > 0] for n in range(encoder.num_hidden_layers)],
            "global_rope_theta": encoder.rope_theta,
            "local_rope_theta": encoder.local_rope_theta,
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": theta}
                for kind, theta in zip(kinds, thetas, strict=True)
            },
            "pad_token_id": encoder.pad_token_id,
            **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
            "tie_word_embeddings": True,
        }

    def encoder_names(self, num_hidden_layers: int) -> dict[str, tuple[str, ...]]:
        """Query, key and value are one tensor in both."""
        layers = [("token_embedding", "embeddings.tok_embeddings")]
        layers += [("embedding_norm", "embeddings.norm")]
        for index in range(num_hidden_layers):
            layers += [
                (f"layers.{index}.{ours}", f"layers.{index}.{theirs}")
                for ours, theirs in (_LAYER_NORMS | _LAYER_LINEARS).items()
            ]
        layers += [("final_norm", "final_norm")]
        return {
            f"{ours}.{kind}": (f"{theirs}.{kind}",)
            for ours, theirs in layers
            for kind in ("weight", "bias")
        }

    def head_names(self, causal: bool) -> dict[str, dict[str, str]]:
        """Masked LM only."""
        del causal
        return {"mlm": {**_HEAD, "bias": "decoder.bias"}}

    def pooler_names(self) -> dict[str, str]:
        """The prediction head."""
        return {f"pooler.{ours.replace('layer_', '')}": theirs for ours, theirs in _HEAD.items()}

    def refusal(self, encoder: "ModernEncoder") -> str | None:
        """Options that are not ModernBERT's."""
        options, found = encoder.options, encoder.position_embedding_type
        wanted = {
            "position_embedding": (found, found == "rotary", "rotary"),
            "norm": (options.norm, options.norm == "layer", "layer"),
            "norm_position": (options.norm_position, options.norm_position == "pre", "pre"),
            "feed_forward": (
                options.feed_forward, options.feed_forward != "plain", "geglu or swiglu",
            ),
            "causal": (encoder.causal, not encoder.causal, "false"),
        }  # fmt: skip
        for name, (value, fits, expected) in wanted.items():
            if not fits:
                return (
                    f"found model.encoder.{name} {value}, expected {expected}, as transformers' "
                    "ModernBERT has nothing else"
                )
        return None

    def drops_segments(self, encoder: "ModernEncoder") -> bool:
        """ModernBERT has one segment."""
        return encoder.type_vocab_size > 1

    def notes(self, encoder: "ModernEncoder") -> list[str]:
        """What becomes of segments."""
        if not self.drops_segments(encoder):
            return []
        return [
            "a text alone gives the same states and probabilities, a pair does not: transformers' "
            "ModernBERT has one segment, and reads text B as it reads text A "
            f"(model.encoder.type_vocab_size {encoder.type_vocab_size})"
        ]

    def state(self, encoder: Encoder) -> dict[str, Tensor]:
        """Those of the module; the first segment's embedding is added to each token's.

        The decoder, which is tied to that table, then gives logits that are all larger by one
        number, h · segment: their probabilities are the same.
        """
        state = super().state(encoder)
        segments = state.pop("token_type_embedding.weight", None)
        if segments is not None:
            state["token_embedding.weight"] = state["token_embedding.weight"] + segments[0]
        return state

    def after_reading(
        self, content: Mapping[str, Any], encoder: dict[str, Tensor], heads: dict[str, Tensor]
    ) -> None:
        """Give heads the biases that the model does not have, as zeros."""
        for layer in ("head.dense", "head.norm"):
            weight = heads.get(f"{layer}.weight")
            if weight is not None:
                heads.setdefault(f"{layer}.bias", weight.new_zeros(len(weight)))
        if content.get("architectures") == ["ModernBertForMaskedLM"]:
            table = encoder[self.word_embedding]
            heads.setdefault("decoder.bias", table.new_zeros(len(table)))

    def before_writing(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Leave out biases of zeros; where a head's norm has one, all norms get one."""
        if config["classifier_dropout"] is None:  # that of the encoder; transformers wants a number
            config["classifier_dropout"] = config["embedding_dropout"]
        dense, norm = (tensors.get(f"head.{layer}.bias") for layer in ("dense", "norm"))
        if dense is not None and not dense.any():
            del tensors["head.dense.bias"]
        elif dense is not None:
            config["classifier_bias"] = True
        if norm is None or config["norm_bias"]:
            return
        if not norm.any():
            del tensors["head.norm.bias"]
            return
        config["norm_bias"] = True
        for name in [each for each in tensors if each.endswith("norm.weight")]:
            bias = name.removesuffix("weight") + "bias"
            tensors.setdefault(bias, torch.zeros_like(tensors[name]))

    def head_layout(self, content: Mapping[str, Any]) -> tuple[str, HeadLayout] | None:
        """A head that pools the mean of all tokens is not known."""
        return None if content.get("classifier_pooling") == "mean" else super().head_layout(content)


def _thetas(content: Mapping[str, Any], path: Path) -> dict[str, float]:
    """Return the bases of rotary wavelengths, of a new config or an old one."""
    given = content.get("rope_parameters")
    if content.get("rope_scaling") is not None:
        raise CheckpointError(f"{path}: found rope_scaling, expected none of it; {_WHY}")
    if given is not None and not isinstance(given, dict):
        raise CheckpointError(f"{path}: found rope_parameters {given!r}, expected an object")
    found = {}
    for ours, (kind, old, default) in _THETAS.items():
        parameters = (given or {}).get(kind) or {}
        if not isinstance(parameters, dict):
            raise CheckpointError(
                f"{path}: found rope_parameters.{kind} {parameters!r}, expected an object"
            )
        type_key = f"rope_parameters.{kind}.rope_type"
        check_only(
            path, {type_key: parameters.get("rope_type", "default")}, {type_key: ("default",)}, _WHY
        )
        theta = parameters.get("rope_theta", content.get(old, default))
        found[ours] = real_number(path, old, theta)
    return found


def _global_every(content: Mapping[str, Any], num_hidden_layers: int, path: Path) -> int:
    """Return how often a layer is global: every n-th from the first, or none but the first."""
    types = content.get("layer_types")
    if types is None:
        every = content.get("global_attn_every_n_layers", 3)
        return whole_number(path, "global_attn_every_n_layers", every, 1)
    # [full, sliding, sliding, full] -> 3; [full, sliding] -> 2, as good as any larger number
    if isinstance(types, list) and len(types) == num_hidden_layers:
        later = [n for n, kind in enumerate(types) if n and kind == "full_attention"]
        every = later[0] if later else max(len(types), 2) if len(types) > 1 else 1
        kinds = ("full_attention", "sliding_attention")
        if types == [kinds[n % every > 0] for n in range(len(types))]:
            return every
    raise CheckpointError(
        f"{path}: found layer_types {str(types)[:120]}, expected num_hidden_layers "
        f"({num_hidden_layers}) of them, every n-th of which from the first is full_attention and "
        "the others sliding_attention"
    )
