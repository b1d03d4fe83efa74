"""BERT as ``transformers`` keeps it: keys of ``config.json`` and names of tensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from bertlab.api.encoder import Encoder
from bertlab.api.huggingface import (
    HeadLayout,
    HuggingFaceForm,
    check_only,
    real_number,
    whole_number,
)
from bertlab.errors import CheckpointError

if TYPE_CHECKING:
    from bertlab.encoders.bert import BertEncoder

# transformers' defaults, which old and trimmed config.json files rely on
SIZES = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
_REALS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.02,
}
# what bertlab's encoder computes; a missing key means the first value
_ONLY: dict[str, tuple[object, ...]] = {
    "hidden_act": ("gelu", "gelu_python"),  # both exact, with erf
    "position_embedding_type": ("absolute", None),
    "add_cross_attention": (False, None),
}
_WHY = "bertlab's encoder is the paper's and would compute something else from these weights"
_LAYER_NAMES = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
_LANGUAGE_MODEL_NAMES = {
    "dense.weight": "cls.predictions.transform.dense.weight",
    "dense.bias": "cls.predictions.transform.dense.bias",
    "layer_norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "layer_norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "bias": "cls.predictions.bias",
}
_NEXT_SENTENCE_NAMES = {
    "classifier.weight": "cls.seq_relationship.weight",
    "classifier.bias": "cls.seq_relationship.bias",
}
POSITION_NAMES = "embeddings.position_embeddings.weight"


class BertForm(HuggingFaceForm):
    """BERT: ``BertModel`` and the classes on top of it."""

    model_type = "bert"
    prefix = "bert."
    word_embedding = "embeddings.word_embeddings.weight"
    layers = "encoder.layer."
    parts = ("embeddings.", "encoder.", "pooler.")
    head_parts: ClassVar[tuple[str, ...]] = ("cls.",)
    decoder = "cls.predictions.decoder"
    decoder_bias = "cls.predictions.bias"
    architectures: ClassVar[Mapping[frozenset[str], str]] = {
        frozenset({"mlm", "nsp"}): "BertForPreTraining",
        frozenset({"mlm"}): "BertForMaskedLM",
        frozenset({"clm"}): "BertLMHeadModel",
        frozenset({"nsp"}): "BertForNextSentencePrediction",
        frozenset[str](): "BertModel",
    }
    heads: ClassVar[Mapping[str, HeadLayout]] = {
        layout.kind: layout
        for layout in (
            HeadLayout("BertForSequenceClassification", "classifier", has_pooler=True),
            HeadLayout("BertForTokenClassification", "classifier", has_pooler=False),
            HeadLayout("BertForQuestionAnswering", "qa_outputs", has_pooler=False, rows=2),
            HeadLayout("BertForMultipleChoice", "classifier", has_pooler=True, rows=1),
        )
    }

    def arguments(self, content: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Keys that lack have the values that ``transformers`` gives them."""
        check_only(path, content, _ONLY, _WHY)
        sizes = {
            key: whole_number(path, key, content.get(key, default), 1)
            for key, default in SIZES.items()
        }
        reals = {
            key: real_number(path, key, content.get(key, default))
            for key, default in _REALS.items()
        }
        if sizes["hidden_size"] % sizes["num_attention_heads"]:
            raise CheckpointError(
                f"{path}: num_attention_heads {sizes['num_attention_heads']} does not divide "
                f"hidden_size {sizes['hidden_size']}"
            )
        pad_token_id = 0 if (given := content.get("pad_token_id")) is None else given
        return {
            **sizes,
            **reals,
            "causal": content.get("is_decoder") is True,
            "position_embedding": "learned",
            "pad_token_id": whole_number(path, "pad_token_id", pad_token_id, 0),
        }

    def config(self, encoder: "BertEncoder", architecture: str) -> dict[str, Any]:
        """As ``transformers`` 5 writes it."""
        return {
            "add_cross_attention": False,
            "architectures": [architecture],
            "bos_token_id": None,
            "classifier_dropout": None,
            "dtype": str(encoder.token_embedding.weight.dtype).removeprefix("torch."),
            "eos_token_id": None,
            "hidden_act": "gelu",
            "is_decoder": encoder.causal,
            "model_type": self.model_type,
            "pad_token_id": encoder.pad_token_id,
            "position_embedding_type": "absolute",
            "tie_word_embeddings": True,
            "use_cache": True,
            **{key: getattr(encoder, key) for key in (*SIZES, *_REALS)},
        }

    def encoder_names(self, num_hidden_layers: int) -> dict[str, tuple[str, ...]]:
        """Query, key and value are one tensor in bertlab."""
        names: dict[str, tuple[str, ...]] = {
            "token_embedding.weight": (self.word_embedding,),
            "position_embedding.weight": (POSITION_NAMES,),
            "token_type_embedding.weight": ("embeddings.token_type_embeddings.weight",),
        }
        pairs: list[tuple[str, tuple[str, ...]]] = [("embedding_norm", ("embeddings.LayerNorm",))]
        for index in range(num_hidden_layers):
            theirs = f"{self.layers}{index}"
            # three (H, H) weights, one below the other, are the (3H, H) of qkv; biases likewise
            stacked = tuple(f"{theirs}.attention.self.{part}" for part in ("query", "key", "value"))
            pairs.append((f"layers.{index}.attention.qkv", stacked))
            for ours, name in _LAYER_NAMES.items():
                pairs.append((f"layers.{index}.{ours}", (f"{theirs}.{name}",)))
        pairs.append(("pooler", ("pooler.dense",)))
        for ours, parts in pairs:
            for kind in ("weight", "bias"):
                names[f"{ours}.{kind}"] = tuple(f"{part}.{kind}" for part in parts)
        return names

    def head_names(self, causal: bool) -> dict[str, dict[str, str]]:
        """The language-model head belongs to ``clm`` on a left-to-right encoder, else to ``mlm``.

        There ``nsp`` has no counterpart: ``transformers`` pools the first token, bertlab the last.
        """
        if causal:
            return {"clm": _LANGUAGE_MODEL_NAMES}
        return {"mlm": _LANGUAGE_MODEL_NAMES, "nsp": _NEXT_SENTENCE_NAMES}

    def refusal(self, encoder: "BertEncoder") -> str | None:
        """A BiLSTM on top of the last layer."""
        if not encoder.bilstm_layers:
            return None
        return (
            f"the encoder has a BiLSTM (model.encoder.bilstm_layers {encoder.bilstm_layers}), for "
            "which transformers' BERT has no place"
        )

    def notes(self, encoder: "BertEncoder") -> list[str]:
        """Sinusoidal positions become a table."""
        if encoder.position_embedding_type != "sinusoidal":
            return []
        return [
            "sinusoidal positions are written as a table of the same values, which transformers "
            "takes for learned ones: results are equal, but further training changes them"
        ]

    def state(self, encoder: Encoder) -> dict[str, Tensor]:
        """Those of the module, and the table of sinusoidal positions."""
        state = super().state(encoder)
        if "position_embedding.weight" not in state:
            table = encoder.get_buffer("sinusoidal_table")
            state["position_embedding.weight"] = table.to(encoder.token_embedding.weight.dtype)
        return state
