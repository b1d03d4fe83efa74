"""Entities as scored spans: the biaffine scorer of Yu et al. 2020."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from bertlab import (
    Column,
    ConfigError,
    DataError,
    EncoderOutput,
    Example,
    Features,
    Head,
    Labels,
    PackedBatch,
    TaskContext,
    TaskLoss,
    Tokenizer,
    classification_loss,
    initialize,
)
from numpy.typing import NDArray
from torch import Tensor, nn

NONE = 0  # class of a span that is no entity; type t of the labels is class t + 1
NONE_SHARE = 0.98  # of the spans of news; where training starts from
EDGE = 1 << 40  # pieces, more than a sentence has

IntArray = NDArray[np.int64]
Entity = tuple[int, int, str]  # first word, word behind the last, type


def entities_of(example: Example) -> list[Entity]:
    """Return the entities that the tags of an example mark, BIO or IOB1, in their order.

    Raises:
        DataError: a tag is neither ``O`` nor ``B-TYPE`` or ``I-TYPE``.
    """
    tags = example.values["tags"]
    if not isinstance(tags, Sequence) or isinstance(tags, str):
        raise DataError(f"{example.where}: column tags: found {tags!r}, expected a list of tags")
    found: list[Entity] = []  # I-PER I-PER B-PER -> (0, 2, "PER"), (2, 3, "PER")
    last = ""
    for place, tag in enumerate(tags):
        mark, _, kind = str(tag).partition("-")
        if tag != "O" and not (mark in ("B", "I") and kind):
            raise DataError(
                f"{example.where}: column tags: found {tag!r}, expected O, B-TYPE or I-TYPE"
            )
        if mark == "I" and kind == last:
            found[-1] = (found[-1][0], place + 1, kind)
        elif kind:
            found.append((place, place + 1, kind))
        last = kind
    return found


def entity_types(labels: Labels) -> Labels:
    """Return the types of entities among labels, which are types or, as declared, tags."""
    if "O" not in labels.names:
        return labels
    # O B-LOC I-LOC B-PER I-PER LOC -> LOC PER
    counts: dict[str, int] = {}
    for name, count in zip(labels.names, labels.counts, strict=True):
        kind = name[2:] if name.startswith(("B-", "I-")) else name
        if name != "O":
            counts[kind] = counts.get(kind, 0) + count
    return Labels(tuple(counts), tuple(counts.values()))


def windows(lengths: IntArray, limit: int, max_words: int) -> Iterator[tuple[int, int]]:
    """Yield first and last word (excluded) of windows of at most ``limit`` word pieces.

    A window begins half a window after the one before it, or earlier: any ``max_words`` words
    that fit into a window at all are together in one.

    Args:
        lengths: word pieces of each word, none above ``limit``.
        limit: most pieces of a window.
        max_words: words of the longest span.
    """
    ends = np.cumsum(lengths)  # lengths [2, 1, 2, 1], limit 4, 2 words -> (0, 2), (1, 4)
    first = 0
    while True:
        before = ends[first] - lengths[first]
        last = int(np.searchsorted(ends, before + limit, side="right"))
        yield first, last
        if last == len(lengths):
            return
        half = int(np.searchsorted(ends, before + limit // 2, side="right"))
        first = max(first + 1, min(half, last - max_words + 1))


def best_windows(
    starts: IntArray, ends: IntArray, lengths: IntArray, parts: Sequence[tuple[int, int]]
) -> IntArray:
    """Return for each span the window that shows most pieces on its narrower side.

    Args:
        starts: ``(K,)`` first word of each span.
        ends: ``(K,)`` last word of each.
        lengths: word pieces of each word.
        parts: first and last word (excluded) of each window.

    Returns:
        ``(K,)`` numbers of windows, -1 for a span that is in none.
    """
    behind = np.cumsum(lengths)
    before = behind - lengths
    room = np.full((len(parts), len(starts)), -1)
    for row, (first, last) in zip(room, parts, strict=True):
        # the end of the sentence hides nothing
        left = before[starts] - before[first] + (EDGE if first == 0 else 0)
        right = behind[last - 1] - behind[ends] + (EDGE if last == len(lengths) else 0)
        within = (starts >= first) & (ends < last)
        row[within] = np.minimum(left, right)[within]
    return np.where(room.max(0) < 0, -1, room.argmax(0))


def select(candidates: Iterable[dict[str, Any]], nested: bool) -> list[dict[str, Any]]:
    """Return the candidates that fit together, best scores first taken, in order of the text.

    Args:
        candidates: with ``start``, ``end`` (excluded) and ``score``.
        nested: one may lie within another; they may not cross. If false they share no word.
    """
    chosen: list[dict[str, Any]] = []
    for new in sorted(candidates, key=lambda span: (-span["score"], span["start"], span["end"])):
        for old in chosen:
            apart = new["end"] <= old["start"] or old["end"] <= new["start"]
            inside = old["start"] <= new["start"] and new["end"] <= old["end"]
            around = new["start"] <= old["start"] and old["end"] <= new["end"]
            if not (apart or (nested and (inside or around))):
                break
        else:
            chosen.append(new)
    return sorted(chosen, key=lambda span: (span["start"], -span["end"]))


def shares(right: int, found: int, true: int) -> tuple[float, float, float]:
    """Return precision, recall and F1 of counts; 0 where there is nothing to divide by."""
    f1 = 2 * right / (found + true) if found + true else 0.0
    return right / found if found else 0.0, right / true if true else 0.0, f1


class EntitySpans(Head):
    """Mark entities by scoring every short span of words for each type, or none.

    The states of the first pieces of a span's first and last word go through a small network
    each; a biaffine form of the two gives a score for each type and for "no entity" (Yu et al.
    2020). Spans with a type above "no entity" are taken by their probability, best first, if they
    fit those taken before.

    A prediction has ``entities``, each with ``words``, ``start`` and ``end`` (numbers of words from
    0, end excluded), ``type`` and ``score``, its probability. Tags are BIO or IOB1, as
    CoNLL-2003 was published. ``precision``, ``recall``, ``f1`` and ``f1/TYPE`` are those of exact
    spans with the right type, over whole sentences; entities of more than ``max_words`` words
    count as missed.

    A sentence of more than ``max_seq_length`` pieces goes in overlapping windows. Each span is
    scored once, in the window that shows most of its surroundings.

    Args:
        max_words: words of the longest span that is scored.
        span_size: width of the two networks.
        nested: predict entities within entities as well; if false, entities share no words.
        none_weight: weight in the loss of a span that is no entity; an entity weighs 1. About 98 %
            of the spans are none. Below 1 more entities are found, and more wrong ones.
        dropout: on the states and in the networks; the encoder's ``hidden_dropout_prob`` if not
            given.

    Raises:
        ConfigError: an argument is out of range.
    """

    columns = (Column("words", "texts"), Column("tags", "tags", is_truth=True))
    monitor = ("f1", "max")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {"precision": "max", "recall": "max"}
    shares = ("precision", "recall", "f1")
    uses_pooled = False
    class_weights: Tensor

    def __init__(
        self,
        max_words: int = 10,
        span_size: int = 128,
        nested: bool = False,
        none_weight: float = 1.0,
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        for name, value, right, expected in (
            ("max_words", max_words, max_words >= 1, "at least 1"),
            ("span_size", span_size, span_size >= 1, "at least 1"),
            ("none_weight", none_weight, none_weight > 0, "above 0"),
            ("dropout", dropout, dropout is None or 0 <= dropout < 1, "at least 0, below 1"),
        ):
            if not right:
                raise ConfigError(f"model.head.{name}: found {value}, expected {expected}")
        self.max_words = max_words
        self.span_size = span_size
        self.nested = nested
        self.none_weight = none_weight
        self.dropout = dropout

    def labels_of(self, example: Example) -> list[str]:
        """Return the type of each entity of an example."""
        return [kind for _, _, kind in entities_of(example)]

    def add_layers(self, context: TaskContext) -> None:
        """Create the networks of first and last words, and the biaffine form."""
        encoder = context.encoder
        self.types = entity_types(context.labels or Labels((), ()))
        classes = len(self.types) + 1
        dropout = encoder.hidden_dropout_prob if self.dropout is None else self.dropout
        self.first, self.last = (
            nn.Sequential(
                nn.Dropout(dropout),
                nn.Linear(encoder.hidden_size, self.span_size),
                nn.GELU(),
                nn.Dropout(dropout),
            )
            for _ in range(2)
        )
        # U first + b, of each class; its product with [last, 1] has the linear terms and the bias.
        self.biaffine = nn.Linear(self.span_size, classes * (self.span_size + 1))
        initialize(self, encoder.initializer_range)
        # BERT's 0.02 would make products of two such networks too small to learn from in an epoch.
        initialize(self.first, encoder.hidden_size**-0.5)
        initialize(self.last, encoder.hidden_size**-0.5)
        # "None" is the common answer from the start, so that the first steps need not teach it.
        with torch.no_grad():
            biases = self.biaffine.bias.view(classes, self.span_size + 1)[:, -1]
            biases.fill_(float(np.log((1 - NONE_SHARE) / max(classes - 1, 1))))
            biases[NONE] = float(np.log(NONE_SHARE))
        weights = torch.ones(classes)
        weights[NONE] = self.none_weight
        self.register_buffer("class_weights", weights, persistent=False)

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return a window or several, with the spans that are scored in each.

        ``Features.fields`` has ``offset``, the number of the window's first word. ``ragged`` has, of
        each word, ``first_pieces``, the place of its first piece; and of each span ``starts``, the
        number of its first word in the window, ``widths``, its words less 1, and ``classes``.
        """
        words = example.values["words"]
        if not isinstance(words, Sequence) or isinstance(words, str):
            raise DataError(
                f"{example.where}: column words: found {words!r}, expected a list of words"
            )
        gold = entities_of(example) if "tags" in example.values else []
        if "tags" in example.values and len(example.values["tags"]) != len(words):
            raise DataError(
                f"{example.where}: column tags: found {len(example.values['tags'])} tags "
                f"of {len(words)} words"
            )
        limit = max_seq_length - 2
        if limit < 1:
            raise DataError(
                f"{example.where}: max_seq_length: found {max_seq_length}, expected at least 3"
            )
        if not words:
            self.notes["sentences without words"] += 1
            return []
        pieces, sizes = self.pieces_of(words, tokenizer)
        lengths = np.minimum(sizes, limit)

        # all spans of the sentence, and the window that each is scored in
        widths = np.tile(np.arange(self.max_words), len(words))  # 3 words, max_words 2: 0 1 0 1 0 1
        starts = np.repeat(np.arange(len(words)), self.max_words)  # 0 0 1 1 2 2
        inside = starts + widths < len(words)
        starts, widths = starts[inside], widths[inside]
        parts = list(windows(lengths, limit, self.max_words))
        owners = best_windows(starts, starts + widths, lengths, parts)
        if len(parts) > 1:
            self.notes["sentences in several windows"] += 1

        table = np.full((len(words), self.max_words), NONE)
        for start, end, kind in gold:
            number = self.types.id_of(kind, example.where, "tags")
            if end - start <= self.max_words:
                table[start, end - start - 1] = number + 1
            else:
                self.notes["entities of more than max_words words"] += 1
        classes = table[starts, widths]
        if lost := int(np.count_nonzero(classes[owners < 0])):
            self.notes["entities that fit into no window"] += lost

        found = []
        for number, (first, last) in enumerate(parts):
            ids = [piece for word in range(first, last) for piece in pieces[word][:limit]]
            features = Features(*tokenizer.build_inputs(ids), {"offset": first})
            features.truncated = int((sizes - lengths).sum()) if first == 0 else 0
            mine = owners == number
            features.count = int(mine.sum())
            own = lengths[first:last]
            features.ragged["first_pieces"] = 1 + np.cumsum(own) - own
            features.ragged["starts"] = starts[mine] - first
            features.ragged["widths"] = widths[mine]
            if "tags" in example.values:
                features.ragged["classes"] = classes[mine]
            found.append(features)
        return found

    @staticmethod
    def pieces_of(words: Sequence[str], tokenizer: Tokenizer) -> tuple[list[list[int]], IntArray]:
        """Return the ids of each word and their number; ``[UNK]`` for a word without any."""
        ids, lengths = tokenizer.encode_texts([str(word) for word in words])
        parts = np.split(ids, np.cumsum(lengths)[:-1])
        unknown = [tokenizer.token_id("[UNK]")]
        return [part.tolist() or unknown for part in parts], np.maximum(lengths, 1)

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return the ``(N,)`` first tokens of words."""
        lengths = batch.fields["first_pieces_cu_seqlens"].diff()
        begins = torch.repeat_interleave(batch.cu_seqlens[:-1].long(), lengths)
        return begins + batch.fields["first_pieces"]

    def logits(self, output: EncoderOutput, batch: PackedBatch) -> Tensor:
        """Return ``(K, classes)`` float32 scores of the K spans of a batch."""
        fields = batch.fields
        states = output.tokens[self.tokens_read(batch)]  # (N, H), of the N words
        first, last = self.first(states), self.last(states)
        # Each word with itself and the words behind it, also those of the next sentence, whose
        # scores nobody reads.
        forms = self.biaffine(first).view(len(first), -1, self.span_size + 1)
        last = nn.functional.pad(last, (0, 1), value=1.0)
        last = nn.functional.pad(last, (0, 0, 0, self.max_words - 1)).unfold(0, self.max_words, 1)
        scores = torch.bmm(forms, last)  # (N, classes, max_words)
        words_before = fields["first_pieces_cu_seqlens"][:-1]
        spans = fields["starts_cu_seqlens"].diff()
        starts = torch.repeat_interleave(words_before, spans) + fields["starts"]
        return scores[starts, :, fields["widths"]].float()

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, weighted, summed in float32 over the K spans."""
        logits = self.logits(output, batch)
        return classification_loss(logits, batch.fields["classes"], self.class_weights)

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return for each window ``{"entities": […]}``, all spans with a type above none."""
        best, classes = self.logits(output, batch).softmax(-1).max(-1)
        (found,) = torch.nonzero(classes != NONE, as_tuple=True)
        window = torch.searchsorted(batch.fields["starts_cu_seqlens"][1:], found, right=True)
        starts = batch.fields["starts"][found] + batch.fields["offset"][window]
        ends = starts + batch.fields["widths"][found] + 1
        predictions: list[dict[str, Any]] = [{"entities": []} for _ in range(len(batch.lengths))]
        columns = (window, starts, ends, classes[found] - 1, best[found])
        for place, *span in zip(*(column.tolist() for column in columns), strict=True):
            start, end, number, score = span
            kind = self.types.names[number]
            predictions[place]["entities"].append(
                {"start": start, "end": end, "type": kind, "score": score}
            )
        return predictions

    def merge(self, example: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the entities of an example that fit together, with their words."""
        chosen = select((span for part in parts for span in part["entities"]), self.nested)
        words = example.values["words"]
        return {
            "entities": [
                {"words": list(words[span["start"] : span["end"]]), **span} for span in chosen
            ]
        }

    def score(
        self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        """Return precision, recall and F1 of exact spans with the right type, and F1 of each."""
        true = {
            (n, *entity) for n, example in enumerate(examples) for entity in entities_of(example)
        }
        found = {
            (n, span["start"], span["end"], span["type"])
            for n, prediction in enumerate(predictions)
            for span in prediction["entities"]
        }
        names = ("precision", "recall", "f1")
        result = dict(zip(names, shares(len(true & found), len(found), len(true)), strict=True))
        for kind in self.types.names:
            of_kind = [{e for e in every if e[-1] == kind} for every in (true & found, found, true)]
            result[f"f1/{kind}"] = shares(*map(len, of_kind))[-1]
        return result

    def score_names(self) -> list[str]:
        """Return the names that ``score`` gives."""
        return ["precision", "recall", "f1", *(f"f1/{kind}" for kind in self.types.names)]

    def row_scores(self, metric: str, rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
        """Return each sentence's influence on precision, recall or F1: ratios of sums over rows."""
        _, of_type, kind = metric.rpartition("f1/")  # "f1/PER" -> "PER"
        counts = []
        for row in rows:
            true = set(entities_of(Example(row["gold"], "")))
            found = {(span["start"], span["end"], span["type"]) for span in row["entities"]}
            every = (true & found, found, true)
            counts.append([sum(kind == e[2] or not of_type for e in each) for each in every])
        right, found, true = np.array(counts, float).T
        ways = {
            "precision": (right, found),
            "recall": (right, true),
            "f1": (2 * right, found + true),
        }
        name = "f1" if of_type else metric.rpartition("/")[2]
        if name not in ways:
            return None
        part, whole = ways[name]
        ratio = part.sum() / max(whole.sum(), 1)
        scores: list[float] = (ratio + (part - ratio * whole) / max(whole.mean(), 1e-9)).tolist()
        return scores
