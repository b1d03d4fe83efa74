"""What the page asks of a model: predictions, what each layer would predict, attention maps."""

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from bertlab import CommandError, PretrainedModel, language_model
from bertlab.api import BertlabError, Column, DataError, EvaluationError, Head, PackedBatch
from bertlab.extend import TextRows, given_texts, words_of
from bertlab_pages.attention_maps import (
    FIGURES,
    attention_layers,
    attention_maps,
    head_figures,
    target_masks,
)
from bertlab_pages.attention_page import ShownRow, attention_page, rounded_weights

_TOP = 3  # tokens of a layer
_LONGEST_SHOWN = 64  # tokens of an attention map


class ModelView:
    """A model, and what the page may ask of it; answers are JSON-ready.

    Args:
        model: with objectives or a head, or an encoder alone.
        title: of the page; where the model comes from, if not given.
    """

    def __init__(self, model: PretrainedModel, title: str | None = None) -> None:
        self.model = model
        self.title = title or model.source
        heads = {name: task for name, task in model.tasks.items() if isinstance(task, Head)}
        if len(heads) > 1:
            raise CommandError(f"--head: found none, expected one of {', '.join(heads)}")
        self.head = next(iter(heads.values()), None)
        self._predictor = None
        with contextlib.suppress(EvaluationError):  # a model without one shows no layers
            self._predictor, self._offset = language_model(
                model.source, model.encoder, model.tokenizer, model.tasks
            )

    def describe(self) -> dict[str, Any]:
        """Return what the page shows and asks for: ``title``, ``fields``, and what it can."""
        return {
            "title": self.title,
            "model": repr(self.model),
            "fields": self._fields(),
            "predicts": bool(self.model.tasks),
            "has_layers": self.has_layers,
            "has_attention": self._has_attention(),
        }

    def predict(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the prediction for what was typed into the fields.

        Args:
            values: texts by field; ``text_pair`` may lack or be empty.

        Raises:
            BertlabError: a text is empty or too long.
        """
        if self.head is None:
            text, pair = values.get("text", ""), values.get("text_pair", "")
            return self.model.predict((text, pair) if pair.strip() else text)[0]
        columns = self._columns(self.head)
        given: dict[str, Any] = {}
        for column in columns:
            text = values.get(column.name, "")
            if not text.strip():
                raise DataError(f"{column.name}: found nothing, expected a text")
            if column.kind != "texts":
                given[column.name] = text
            elif len(columns) == 1:
                given[column.name] = words_of(text)
            else:
                given[column.name] = [line for line in text.splitlines() if line.strip()]
        return self.model.predict(given)[0]

    @torch.no_grad()
    def layers(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return what the masked-LM head makes of each layer's states at each ``[MASK]``.

        A layer before the last was not trained for that; it shows when a prediction takes shape
        (the "logit lens"). Pre-norm encoders have their last norm applied to each.

        Raises:
            BertlabError: a text is empty or too long.
        """
        assert self._predictor is not None
        batch = self._batch(values)
        places = (batch.input_ids == self.model.tokenizer.mask_id).nonzero()[:, 0] + self._offset
        output = self.model.encoder(batch, all_layers=True)
        assert output.all_layers is not None
        norm = getattr(self.model.encoder, "final_norm", None)
        rows = []
        for number, states in enumerate(output.all_layers):
            hidden = states[places]
            if norm is not None and number + 1 < len(output.all_layers):
                hidden = norm(hidden)
            shares, ids = self._predictor.logits(hidden).softmax(-1).topk(_TOP)
            rows.append(
                [
                    [
                        {"token": self.model.tokenizer.readable(each), "probability": share}
                        for each, share in zip(of_mask, weights, strict=True)
                    ]
                    for of_mask, weights in zip(ids.tolist(), shares.tolist(), strict=True)
                ]
            )
        return {"layers": rows}

    @torch.no_grad()
    def attention(self, values: Mapping[str, str]) -> str:
        """Return the page of the attention maps of a text.

        Raises:
            BertlabError: the text is empty, or has more than 64 tokens.
        """
        batch, tokenizer = self._batch(values), self.model.tokenizer
        ids = batch.input_ids.tolist()
        if len(ids) > _LONGEST_SHOWN:
            raise DataError(f"found {len(ids)} tokens, expected at most {_LONGEST_SHOWN} for a map")
        inputs = [(ids, batch.token_type_ids.tolist())]
        ((_, maps),) = attention_maps(self.model, inputs, len(ids))
        figures = head_figures(maps, target_masks(batch.input_ids, tokenizer))
        tokens = [tokenizer.readable(each) for each in ids]
        row = ShownRow("your text", tokens, rounded_weights(maps), figures)
        return attention_page(self.model.source, FIGURES, [row])

    def _fields(self) -> list[dict[str, Any]]:
        if self.head is None:
            return [
                {"name": "text", "lines": False, "required": True},
                {"name": "text_pair", "lines": False, "required": False},
            ]
        columns = self._columns(self.head)
        return [
            {
                "name": column.name,
                "lines": column.kind == "texts" and len(columns) > 1,
                "required": True,
            }
            for column in columns
        ]

    @staticmethod
    def _columns(head: Head) -> list[Column]:
        return [column for column in head.columns if column.required and not column.is_truth]

    def _batch(self, values: Mapping[str, str]) -> PackedBatch:
        """Return the first two texts as one sequence."""
        texts = [values.get(field["name"], "") for field in self._fields()]
        pair = texts[1] if len(texts) > 1 and texts[1].strip() else None
        given = given_texts([texts[0]], None if pair is None else [pair])
        rows = TextRows(given, self.model.tokenizer, self.model.max_seq_length)
        ((batch,),) = list(rows)
        return batch.to(self.model.encoder.token_embedding.weight.device)

    @property
    def has_layers(self) -> bool:
        """Whether :meth:`layers` can be asked for: masked tokens are predicted, both ways."""
        causal = bool(getattr(self.model.encoder, "causal", False))
        return self._predictor is not None and not causal

    def _has_attention(self) -> bool:
        try:
            attention_layers(self.model)
        except BertlabError:
            return False
        return True
