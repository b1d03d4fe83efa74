"""What a model makes of one text: values that draw themselves in a notebook.

``model.attentions(text)``, ``layers``, ``fill`` and ``entities`` of a loaded model
are the functions below. A drawing is HTML without scripts that loads nothing, its texts escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertlab import CommandError, PretrainedModel, TokenPrediction
from bertlab.api import DataError, EvaluationError, Head, PackedBatch
from bertlab.extend import TextRows, given_texts, kind_of, words_of
from bertlab_pages.attention_maps import attention_maps
from bertlab_pages.tables import PAGES

FloatArray = npt.NDArray[np.float32]
Guess = tuple[str, float]  # a token and its probability

_MOST_DRAWN = 64  # tokens
_SHADES = 10  # of lines: the weights that fall into one share a path


@dataclass(frozen=True, eq=False, repr=False)
class HeadAttention:
    """The attention of one head, drawn as lines from each token to those that it attends to.

    Attributes:
        name: ``layer 3, head 8``.
        tokens: S texts, special tokens included.
        weights: ``(S, S)`` float32 probabilities; ``[i, j]``: how much token i attends to token j.
    """

    name: str
    tokens: Sequence[str]
    weights: FloatArray

    def __repr__(self) -> str:
        return f"<attention of {self.name}, {len(self.tokens)} tokens>"

    def _repr_html_(self) -> str | None:
        return _drawn("head", self, lines=_lines(self.weights, 20, 118, 282, least=0.03))


@dataclass(frozen=True, eq=False, repr=False)
class Attentions:
    """The attention of all heads to one text, drawn small: a line of pictures for each layer.

    Attributes:
        tokens: S texts, special tokens included.
        weights: ``(layers, heads, S, S)`` float32 probabilities; ``[l, h, i, j]`` is how much token
            i attends to token j in head h + 1 of layer l + 1.
    """

    tokens: Sequence[str]
    weights: FloatArray

    def head(self, layer: int, head: int) -> HeadAttention:
        """Return one head, drawn large with its tokens.

        Args:
            layer: its number, from 1.
            head: its number in the layer, from 1.

        Raises:
            CommandError: there is no such head.
        """
        layers, heads = self.weights.shape[:2]
        if not (1 <= layer <= layers and 1 <= head <= heads):
            raise CommandError(
                f"head({layer}, {head}): found {layers} layers of {heads} heads, expected numbers "
                f"from (1, 1) to ({layers}, {heads})"
            )
        name = f"layer {layer}, head {head}"
        return HeadAttention(name, self.tokens, self.weights[layer - 1, head - 1])

    def __repr__(self) -> str:
        layers, heads = self.weights.shape[:2]
        return f"<attentions of {layers} layers of {heads} heads, {len(self.tokens)} tokens>"

    def _repr_html_(self) -> str | None:
        maps = [[_lines(each, 6, 0, 56, least=0.1) for each in layer] for layer in self.weights]
        return _drawn("heads", self, maps=maps)


@dataclass(frozen=True, eq=False, repr=False)
class Layers:
    """What each layer makes of one text, drawn as a table with a line for each layer.

    Of a masked LM a cell has the token that it would predict there from the layer's states, shaded
    by its probability (the "logit lens"): layers before the last were not trained for that. Of
    other models a cell has the cosine of a token's states before and after the layer.

    Attributes:
        tokens: S texts, special tokens included.
        states: ``(L + 1, S, H)`` float32, the embeddings first.
        guesses: for each of the L + 1 layers the best guess at each of the S tokens; None of a
            model without a masked LM.
    """

    tokens: Sequence[str]
    states: FloatArray
    guesses: list[list[Guess]] | None

    @property
    def cosines(self) -> FloatArray:
        """``(L, S)`` float32: cosine of a token's states before and after each layer."""
        sizes = np.linalg.norm(self.states, axis=-1)
        products = (self.states[1:] * self.states[:-1]).sum(-1)
        cosines: FloatArray = products / np.maximum(sizes[1:] * sizes[:-1], 1e-12)
        return cosines

    def __repr__(self) -> str:
        layers, tokens, size = self.states.shape
        return f"<{layers - 1} layers of {size}, {tokens} tokens>"

    def _repr_html_(self) -> str | None:
        if self.guesses is not None:
            names = ["embeddings", *(f"layer {n + 1}" for n in range(len(self.guesses) - 1))]
            cells, says = self.guesses, "what the masked LM predicts from each layer's states"
        else:
            cosines = self.cosines
            names = [f"layer {number + 1}" for number in range(len(cosines))]
            # a token that the layer turns round is shaded most
            cells = [[(f"{each:.2f}", float(1 - each)) for each in row] for row in cosines]
            says = "cosine of each token's states before and after the layer"
        return _drawn("layers", self, rows=list(zip(names, cells, strict=True)), says=says)


@dataclass(frozen=True, eq=False)
class Filled:
    """A text and the guesses at each of its masks, drawn with the best of them marked.

    Attributes:
        pieces: N + 1 texts, before, between and after the N masks.
        guesses: for each mask the most probable tokens, best first.
    """

    pieces: Sequence[str]
    guesses: list[list[Guess]]

    @property
    def text(self) -> str:
        """The text with the best guess in the place of each mask."""
        best = [guesses[0][0] for guesses in self.guesses]
        return "".join(a + b for a, b in zip(self.pieces, [*best, ""], strict=True))

    def _repr_html_(self) -> str | None:
        return _drawn("filled", self)


@dataclass(frozen=True, eq=False)
class Entities:
    """Words and what a head marks among them, drawn as highlighted words with their types.

    Attributes:
        words: of the text.
        spans: first word, the word after the last, and type of each entity or tag.
    """

    words: Sequence[str]
    spans: list[tuple[int, int, str]]

    @property
    def marked(self) -> list[tuple[str, list[str]]]:
        """Each word with the types of all entities that it belongs to, which may overlap."""
        return [
            (word, [kind for start, end, kind in self.spans if start <= number < end])
            for number, word in enumerate(self.words)
        ]

    @property
    def pieces(self) -> list[tuple[str, str]]:
        """The text in pieces of neighbouring words that belong to the same entities, with types."""
        starts = {place for start, end, _ in self.spans for place in (start, end)}
        pieces: list[tuple[str, str]] = []
        for number, (word, kinds) in enumerate(self.marked):
            if pieces and number not in starts:
                pieces[-1] = (f"{pieces[-1][0]} {word}", pieces[-1][1])
            else:
                pieces.append((word, " ".join(kinds)))
        return pieces

    def _repr_html_(self) -> str | None:
        return _drawn("entities", self)


@torch.no_grad()
def attentions(model: PretrainedModel, text: str, pair: str | None = None) -> Attentions:
    """Return the attention of all heads to a text, or to a pair of texts.

    Raises:
        BertlabError: the text is empty or too long, or the encoder's attention cannot be read.
    """
    batch = one_sequence(model, text, pair)
    inputs = [(batch.input_ids.tolist(), batch.token_type_ids.tolist())]
    ((_, maps),) = attention_maps(model, inputs, len(inputs[0][0]))
    return Attentions(_tokens(model, batch), maps.float().cpu().numpy())


@torch.no_grad()
def layers(model: PretrainedModel, text: str, pair: str | None = None) -> Layers:
    """Return the states of all layers for a text, and what a masked LM would predict from them.

    Raises:
        BertlabError: the text is empty or too long, or the encoder does not return its layers.
    """
    batch = one_sequence(model, text, pair)
    states = _states(model, batch)
    predictor = masked_lm(model)
    guesses = None
    if predictor is not None:
        places = torch.arange(len(batch.input_ids), device=batch.input_ids.device)
        lens = logit_lens(model, predictor, states, places, 1)
        guesses = [[best for (best,) in layer] for layer in lens]
    return Layers(_tokens(model, batch), torch.stack(states).float().cpu().numpy(), guesses)


def fill(model: PretrainedModel, text: str) -> Filled:
    """Return a masked LM's guesses at each mask of a text.

    Raises:
        BertlabError: the model has no masked LM; the text has no mask, or is too long.
    """
    mask = model.tokenizer.special.mask
    if masked_lm(model) is None or mask is None:
        raise EvaluationError(f"{model.source}: has no masked LM, which fills masks")
    _check_texts(text)
    pieces = text.split(mask)
    if len(pieces) == 1:
        raise DataError(f"text: found no {mask}, expected one or more")
    found = model.predict(text)[0]["fillers"]
    guesses = [[(each["token"], each["probability"]) for each in of_mask] for of_mask in found]
    return Filled(pieces, guesses)


def entities(model: PretrainedModel, text: str | Sequence[str]) -> Entities:
    """Return what a head that tags words, or finds entities, marks in a text.

    Args:
        model: with such a head.
        text: or its words.

    Raises:
        BertlabError: the model has another head or none; the text is empty or too long.
    """
    heads = [task for task in model.tasks.values() if isinstance(task, Head)]
    if not any(column.name == "words" for head in heads for column in head.columns):
        raise EvaluationError(f"{model.source}: has no head that marks words, such as tagging")
    words = words_of(text) if isinstance(text, str) else list(text)
    return Entities(words, _spans(model.predict({"words": words})[0]))


def _spans(prediction: dict[str, Any]) -> list[tuple[int, int, str]]:
    """Return the entities that a head has found; of tags that mark none the tags but ``O``."""
    if "entities" not in prediction:
        tags = enumerate(prediction["tags"])
        return [(number, number + 1, tag) for number, tag in tags if tag != "O"]
    found = prediction["entities"]
    # bertlab-entity-spans counts in words only, the head tagging names what it counts in
    first, end = ("start_word", "end_word") if "tags" in prediction else ("start", "end")
    return [(each[first], each[end], each["type"]) for each in found]


def _check_texts(*given: object) -> None:
    for each in given:
        if not isinstance(each, str):
            raise DataError(f"text: found {kind_of(each)}, expected one text")


def one_sequence(model: PretrainedModel, text: str, pair: str | None = None) -> PackedBatch:
    """Return a text, or two, as a batch of one sequence on the model's device.

    Raises:
        BertlabError: a text is empty or too long.
    """
    _check_texts(text, pair or text)
    given = given_texts([text], None if pair is None else [pair])
    ((batch,),) = list(TextRows(given, model.tokenizer, model.max_seq_length))
    return batch.to(model.encoder.token_embedding.weight.device)


def masked_lm(model: PretrainedModel) -> TokenPrediction | None:
    """Return the objective that predicts a token from the states at it, if the model has one."""
    from bertlab.api import language_model  # noqa: PLC0415  of bertlab-evaluations

    try:
        found, offset = language_model(model.source, model.encoder, model.tokenizer, model.tasks)
    except EvaluationError:
        return None
    return found if offset == 0 and not getattr(model.encoder, "causal", False) else None


def logit_lens(
    model: PretrainedModel,
    predictor: TokenPrediction,
    states: Sequence[torch.Tensor],
    places: torch.Tensor,
    count: int,
) -> list[list[list[Guess]]]:
    """Return what a masked LM makes of the states of each layer: the most probable tokens.

    Args:
        model: whose last norm is applied to each layer, if its encoder is a pre-norm one.
        predictor: its masked LM.
        states: L + 1 tensors ``(S, H)``, embeddings first.
        places: ``(P,)`` int64, of the S tokens.
        count: of guesses.

    Returns:
        By layer and place ``count`` guesses, best first.
    """
    norm = getattr(model.encoder, "final_norm", None)
    found = []
    for number, layer in enumerate(states):
        hidden = layer[places]
        if norm is not None and number + 1 < len(states):
            hidden = norm(hidden)
        shares, ids = predictor.logits(hidden).float().softmax(-1).topk(count)
        found.append(
            [
                [(model.tokenizer.readable(i), share) for i, share in zip(*of_place, strict=True)]
                for of_place in zip(ids.tolist(), shares.tolist(), strict=True)
            ]
        )
    return found


def _states(model: PretrainedModel, batch: PackedBatch) -> list[torch.Tensor]:
    states = model.encoder(batch, all_layers=True).all_layers
    if states is None:
        kind = type(model.encoder).__name__
        raise EvaluationError(f"{model.source}: its {kind} does not return its layers")
    return list(states)


def _tokens(model: PretrainedModel, batch: PackedBatch) -> list[str]:
    return [model.tokenizer.readable(each) for each in batch.input_ids.tolist()]


def _lines(
    weights: FloatArray, height: int, left: int, right: int, least: float
) -> list[tuple[float, str]]:
    """Return lines of ``(S, S)`` weights as SVG paths, each with its opacity, the faint ones first.

    ``height`` is that of a token; weights below ``least`` have no line.
    """
    paths: dict[int, list[str]] = {}
    for i, j in np.argwhere(weights >= least).tolist():
        # from the middle of line i to that of line j: height 20, (0, 2) -> M118 10L282 50
        line = f"M{left} {i * height + height // 2}L{right} {j * height + height // 2}"
        paths.setdefault(round(float(weights[i, j]) * _SHADES), []).append(line)
    return [(max(shade, 1) / _SHADES, "".join(paths[shade])) for shade in sorted(paths)]


def _drawn(kind: str, found: object, **values: object) -> str | None:
    """Return a drawing; None of what is too long, which a notebook then shows as its ``repr``."""
    if len(getattr(found, "tokens", ())) > _MOST_DRAWN:
        return None
    return PAGES.get_template("inside.html").render(kind=kind, found=found, **values)
