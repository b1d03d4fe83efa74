"""What the page asks of a model: predictions, what each layer would predict, attention maps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertlab import CommandError, PretrainedModel
from bertlab.api import BertlabError, Column, DataError, Head, PackedBatch
from bertlab.extend import words_of
from bertlab_pages.attention_maps import (
    FIGURES,
    attention_layers,
    attention_maps,
    head_figures,
    target_masks,
)
from bertlab_pages.attention_page import ShownRow, attention_page, rounded_weights
from bertlab_pages.inside import logit_lens, masked_lm, one_sequence

_TOP = 3  # tokens of a layer
_MOST_COMPARED = 100  # texts
_LONGEST_SHOWN = 64  # tokens of an attention map


class ModelView:
    """A model, and what the page may ask of it; answers are JSON-ready.

    Args:
        model: with objectives or a head, or an encoder alone.
        title: of the page; the last part of where the model comes from, if not given.
    """

    def __init__(self, model: PretrainedModel, title: str | None = None) -> None:
        self.model = model
        self.title = title or name_of(model.source)
        heads = {name: task for name, task in model.tasks.items() if isinstance(task, Head)}
        if len(heads) > 1:
            raise CommandError(f"--head: found none, expected one of {', '.join(heads)}")
        self.head = next(iter(heads.values()), None)
        self._predictor = masked_lm(model)  # a model without one shows no layers

    def describe(self) -> dict[str, Any]:
        """Return what the page shows and asks for, and what the model can.

        ``title`` and ``model`` are words for people; ``fields`` what is typed; ``mask`` stands for
        a token to be guessed; ``predicts``, ``compares``, ``has_layers``, ``has_attention``.
        """
        return {
            "title": self.title,
            "model": self._about(),
            "mask": self.model.tokenizer.special.mask,
            "compares": self.compares,
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
        prediction = self.model.predict(given)[0]
        # the tags of words, whose words the page shows beside them
        return prediction | ({"words": given["words"]} if "tags" in prediction else {})

    def compare(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return how similar the vectors of texts are to that of ``text``, the nearest first.

        Args:
            values: ``text``, and ``texts``: one a line. A vector is the mean over all tokens of the
                last layer.

        Returns:
            ``neighbours``: ``{"text", "similarity"}``, the cosine.

        Raises:
            BertlabError: a text is empty or too long, or there are over a hundred.
        """
        others = [line for line in values.get("texts", "").splitlines() if line.strip()]
        if len(others) > _MOST_COMPARED:
            raise DataError(f"found {len(others)} texts, expected at most {_MOST_COMPARED}")
        if not others:
            raise DataError("texts: found none, expected one a line")
        vectors = self.model.embed([values.get("text", ""), *others], layers=[-1], pool="mean")
        sizes = np.linalg.norm(vectors, axis=1)
        cosines = vectors[1:] @ vectors[0] / np.maximum(sizes[1:] * sizes[0], 1e-12)
        found = zip(others, cosines.tolist(), strict=True)
        return {
            "neighbours": [
                {"text": text, "similarity": similarity}
                for text, similarity in sorted(found, key=lambda each: -each[1])
            ]
        }

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
        places = (batch.input_ids == self.model.tokenizer.mask_id).nonzero()[:, 0]
        states = self.model.encoder(batch, all_layers=True).all_layers
        assert states is not None
        return {
            "layers": [
                [
                    [{"token": token, "probability": share} for token, share in guesses]
                    for guesses in layer
                ]
                for layer in logit_lens(self.model, self._predictor, states, places, _TOP)
            ]
        }

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
        return attention_page(self.title, FIGURES, [row])

    @property
    def compares(self) -> bool:
        """Whether the page compares texts: of an encoder alone, which predicts nothing."""
        return not self.model.tasks

    def _about(self) -> str:
        """Return what the model is, in words."""
        encoder = self.model.encoder
        number = sum(each.numel() for each in encoder.parameters())
        kind = type(encoder).__name__.removesuffix("Encoder") or "Encoder"
        tasks = f"; it was trained for {', '.join(self.model.tasks)}" if self.model.tasks else ""
        layers = f"{encoder.num_hidden_layers} layer{'s'[: encoder.num_hidden_layers != 1]}"
        return f"{kind} with {layers} of {encoder.hidden_size}, {number:,} parameters{tasks}"

    def _fields(self) -> list[dict[str, Any]]:
        if self.compares:
            return [
                {"name": "text", "lines": False, "required": True},
                {"name": "texts", "lines": True, "required": True},
            ]
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
        pair = texts[1] if len(texts) > 1 and texts[1].strip() and not self.compares else None
        return one_sequence(self.model, texts[0], pair)

    @property
    def has_layers(self) -> bool:
        """Whether :meth:`layers` can be asked for: masked tokens are predicted, both ways."""
        return self._predictor is not None

    def _has_attention(self) -> bool:
        try:
            attention_layers(self.model)
        except BertlabError:
            return False
        return True


def name_of(source: str) -> str:
    """Return what people call a model: ``runs/my/checkpoints/last.ckpt`` → ``my``."""
    parts = [part for part in Path(source).parts if part != "checkpoints"]
    if parts and parts[-1].endswith(".ckpt") and len(parts) > 1:
        parts.pop()
    return parts[-1] if parts else source
