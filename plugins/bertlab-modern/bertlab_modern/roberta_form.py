"""RoBERTa as ``transformers`` keeps it: a form of BERT's encoder."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from bertlab import CheckpointError
from bertlab.api import Tokenizer
from bertlab.extend import POSITION_NAMES, BertForm, HeadLayout

if TYPE_CHECKING:
    from bertlab import BertEncoder

_SEQUENCES = "BertForSequenceClassification"
_SEPARATORS = 2  # <s> A </s></s> B </s>


class RobertaForm(BertForm):
    """RoBERTa: BERT's encoder with one segment; positions begin behind the padding's.

    ``transformers`` numbers them from ``pad_token_id + 1``. Its language-model head is called
    ``lm_head``, and its head for sequences holds what BERT calls the pooler. It is written for a
    tokenizer that parts two texts as RoBERTa's does, with two separators.
    """

    model_type = "roberta"
    extends = BertForm.model_type
    prefix = "roberta."
    head_parts = ("lm_head.", "classifier.dense.")
    decoder = "lm_head.decoder"
    decoder_bias = "lm_head.bias"
    architectures: ClassVar[Mapping[frozenset[str], str]] = {
        frozenset({"mlm"}): "RobertaForMaskedLM",
        frozenset({"clm"}): "RobertaForCausalLM",
        frozenset[str](): "RobertaModel",
    }
    heads: ClassVar[Mapping[str, HeadLayout]] = {
        layout.kind.replace("Bert", "Roberta"): layout
        for layout in (
            replace(BertForm.heads[_SEQUENCES], written_as="classifier.out_proj"),
            *(layout for kind, layout in BertForm.heads.items() if kind != _SEQUENCES),
        )
    }

    def suits(self, encoder: "BertEncoder", tokenizer: Tokenizer) -> bool:
        """One segment, and texts that are parted as RoBERTa's."""
        return encoder.type_vocab_size == 1 and tokenizer.layout.separators == _SEPARATORS

    def pooler_names(self) -> dict[str, str]:
        """Those of the head for sequences; the one for choices reads a pooler like BERT's."""
        return {f"pooler.{kind}": f"classifier.dense.{kind}" for kind in ("weight", "bias")}

    def arguments(self, content: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """The positions that can be read are fewer than the table has rows."""
        # transformers' defaults where they differ from BERT's
        usual = {"vocab_size": 50265, "pad_token_id": 1}
        arguments = super().arguments({**usual, **content}, path)
        first = arguments["pad_token_id"] + 1
        rows = arguments["max_position_embeddings"]
        if rows <= first:
            raise CheckpointError(
                f"{path}: found max_position_embeddings {rows}, expected more than {first}, as "
                f"positions begin at pad_token_id + 1"
            )
        return arguments | {"max_position_embeddings": rows - first}

    def head_names(self, causal: bool) -> dict[str, dict[str, str]]:
        """As BERT's."""
        names = {
            f"{layer}.{kind}": f"lm_head.{layer}.{kind}"
            for layer in ("dense", "layer_norm")
            for kind in ("weight", "bias")
        }
        return {"clm" if causal else "mlm": names | {"bias": "lm_head.bias"}}

    def after_reading(
        self, content: Mapping[str, Any], encoder: dict[str, Tensor], heads: dict[str, Tensor]
    ) -> None:
        """Leave out the rows of the table that stand for no position."""
        pad_token_id = content.get("pad_token_id", 1)
        first = 1 if pad_token_id is None else pad_token_id + 1
        if POSITION_NAMES in encoder:
            encoder[POSITION_NAMES] = encoder[POSITION_NAMES][first:]  # (514, H) -> (512, H)

    def config(self, encoder: "BertEncoder", architecture: str) -> dict[str, Any]:
        """As BERT's, with rows for the positions that are none."""
        content = super().config(encoder, architecture)
        rows = encoder.max_position_embeddings + encoder.pad_token_id + 1
        return content | {"max_position_embeddings": rows}

    def before_writing(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Add rows to the table for positions that are none; keep the pooler at one place."""
        for name in [each for each in tensors if each.endswith(POSITION_NAMES)]:
            table = tensors[name]
            rows = table.new_zeros(config["pad_token_id"] + 1, table.shape[1])
            tensors[name] = torch.cat([rows, table])  # (512, H) -> (514, H)
        (architecture,) = config["architectures"]
        of_sequences = architecture.endswith("ForSequenceClassification")  # a subclass's, too
        kept = "classifier.dense." if of_sequences else ""
        if architecture.endswith("MultipleChoice"):
            kept = f"{self.prefix}pooler."
        for part in ("classifier.dense.", f"{self.prefix}pooler."):
            for name in [each for each in tensors if each.startswith(part) and part != kept]:
                del tensors[name]
