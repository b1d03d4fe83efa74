"""A tag for each word of a sentence (paper fig. 4d, sec. 5.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertlab import ClassifierHead, check_at_least, classification_loss
from bertlab.api import (
    Column,
    ConfigError,
    DataError,
    EncoderOutput,
    Example,
    Features,
    Labels,
    PackedBatch,
    TaskContext,
    TaskLoss,
    Tokenizer,
)
from bertlab_tasks.tag_schemes import (
    Scheme,
    check_plain,
    entities,
    entity_score_names,
    entity_scores,
    entity_types,
    is_entity_tag,
    to_bio,
)
from bertlab_tasks.text_of_words import WORD_COLUMNS, word_places, words_as_given

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WordWindow:
    """Some whole words of a sentence between ``[CLS]`` and ``[SEP]``.

    Attributes:
        input_ids: T ids.
        word: ``(T,)`` int64 number of the word in the sentence at its first piece, -1 elsewhere.
        is_predicted: ``(T,)`` bool, True at the first piece of a word that is predicted here; the
            others are context.
        truncated: pieces that were cut off the words predicted here.
    """

    input_ids: list[int]
    word: IntArray
    is_predicted: npt.NDArray[np.bool_]
    truncated: int


def word_windows(
    words: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_length: int,
    stride: int | None = None,
) -> list[WordWindow]:
    """Cut a sentence into windows; one, if it fits.

    Each word is predicted in the window that shows most of its surroundings: where the smaller of
    the numbers of pieces to its left and right is largest, the first such window of several.
    """
    room = tokenizer.room(max_seq_length)
    if room < 1:
        raise ConfigError(f"data.max_seq_length: found {max_seq_length}, expected 3 or more")
    if stride is not None and not 1 <= stride <= room:
        raise ConfigError(
            f"model.head.window_stride: found {stride}, expected 1 to {room} "
            "(data.max_seq_length less [CLS] and [SEP]), for words between windows would be lost"
        )
    pieces = _pieces(words, tokenizer)
    lengths = np.minimum([len(ids) for ids in pieces], room)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    spans = _spans(offsets, room, stride or max(1, room // 2))
    window_of_word = _most_context(offsets, spans)

    windows = []
    for number, (start, end) in enumerate(spans):
        chosen = window_of_word[start:end] == number
        if not chosen.any():
            continue
        ids = [piece for word in pieces[start:end] for piece in word[:room]]
        # behind [CLS]: words of 1, 2 and 1 pieces begin at [1, 2, 4]
        firsts = 1 + offsets[start:end] - offsets[start]
        word = np.full(len(ids) + 2, -1, np.int64)
        word[firsts] = np.arange(start, end)
        is_predicted = np.zeros(len(ids) + 2, np.bool_)
        is_predicted[firsts] = chosen
        cut = sum(
            len(pieces[start + place]) - room
            for place in np.flatnonzero(chosen & (lengths[start:end] == room))
        )
        windows.append(WordWindow(tokenizer.build_inputs(ids)[0], word, is_predicted, cut))
    return windows


def _pieces(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    ids, lengths = tokenizer.encode_texts(words)
    flat, ends = ids.tolist(), np.cumsum(lengths).tolist()
    starts = [0, *ends[:-1]]
    return [flat[start:end] or [tokenizer.unk_id] for start, end in zip(starts, ends, strict=True)]


def _spans(offsets: IntArray, room: int, stride: int) -> list[tuple[int, int]]:
    """First and last word, the last excluded, of each window; ``offsets`` ``(N + 1,)``."""
    # words of 2, 1, 2, 1 pieces: offsets [0, 2, 3, 5, 6], room 4, stride 2 -> [(0, 2), (1, 4)]
    spans, start = [], 0
    while True:
        end = int(np.searchsorted(offsets, offsets[start] + room, side="right")) - 1
        spans.append((start, end))
        if end == len(offsets) - 1:
            return spans
        further = int(np.searchsorted(offsets, offsets[start] + stride, side="right")) - 1
        start = max(start + 1, further)


def _most_context(offsets: IntArray, spans: Sequence[tuple[int, int]]) -> IntArray:
    """``(N,)`` number of the window in which each word has most context."""
    best = np.full(len(offsets) - 1, -1, np.int64)
    window_of_word = np.zeros_like(best)
    for number, (start, end) in enumerate(spans):
        # of these spans: word 1 has no piece to its right in the first, none to its left in the
        # second; of equals the first is chosen: [0, 0, 1, 1]
        left = offsets[start:end] - offsets[start]
        right = offsets[end] - offsets[start + 1 : end + 1]
        context = np.minimum(left, right)
        better = context > best[start:end]
        best[start:end][better] = context[better]
        window_of_word[start:end][better] = number
    return window_of_word


_NOT_PREDICTED = -100  # any: loss and decode read the predicted places only


class Tagging(ClassifierHead):
    """Classify the hidden state of each word's first piece; the other pieces carry no tag.

    A sentence of more than ``max_seq_length`` pieces goes in overlapping windows. Each word is
    trained and predicted once, in the window that shows most of its surroundings. ``classifier`` is
    that of Hugging Face's ``BertForTokenClassification``.

    Entities are scored as ``conlleval`` does: ``precision``, ``recall``, ``f1``, and ``f1/TYPE``
    for each type, beside the ``accuracy`` over words and ``majority_accuracy``, that of giving all
    words the commonest tag of training. Tags that mark no entities have the accuracies only.

    Args:
        scheme: how ``tags`` mark entities. Training and predictions use BIO. ``bio``: taken as they
            are. ``iob1`` (CoNLL-2003 as published): an ``I-`` that begins an entity becomes ``B-``.
            ``none``: they mark none, as parts of speech. ``auto``: ``none`` if no tag of the
            training data is ``B-TYPE`` or ``I-TYPE``, else as ``iob1``, which leaves BIO unchanged.
        window_stride: tokens from the start of a window to the next one's, for long sentences; half
            a window if not given.
        dropout: on the hidden states; the encoder's ``hidden_dropout_prob`` if not given.

    Raises:
        ConfigError: if the stride is below 1 or the dropout not in 0 to 1.
    """

    columns = (
        Column("words", "texts", aliases=WORD_COLUMNS[1:]),
        Column("tags", "tags", is_truth=True),
    )
    monitor = ("f1", "max")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {
        "f1": "max",
        "precision": "max",
        "recall": "max",
        "accuracy": "max",
    }
    shares = ("f1", "precision", "recall", "accuracy")
    uses_pooled = False
    huggingface: ClassVar[str | None] = "BertForTokenClassification"

    def __init__(
        self,
        scheme: Scheme = "auto",
        window_stride: int | None = None,
        dropout: float | None = None,
    ) -> None:
        super().__init__(dropout)
        check_at_least("model.head.window_stride", window_stride, 1, " tokens")
        self.scheme = scheme
        self.window_stride = window_stride
        self.entity_types: list[str] | None = []

    def build(self, context: TaskContext) -> None:
        """Keep the labels and what they mark, and create the layers.

        Raises:
            DataError: if the training data has fewer than two tags, or they are not of the scheme.
        """
        if not context.labels:
            raise DataError("tags: found none in the training data, expected a tag for each word")
        # counts are 0 of a model that others trained: it may predict one tag
        if len(context.labels.names) == 1 and any(context.labels.counts):
            raise DataError(
                f"tags: all words of the training data have {context.labels.names[0]!r}, so there "
                "is nothing to learn; check data.columns and the training file"
            )
        self.entity_types = entity_types(context.labels.names, self.scheme)
        if self.entity_types is None:
            # of the classes of a Hugging Face folder nothing is counted, and nothing is learnt
            if self.scheme == "auto" and any(context.labels.counts):
                check_plain(context.labels.names, context.labels.counts)
            self.monitor = ("accuracy", "max")  # type: ignore[misc]  # depends on the data
        super().build(context)

    def describe_labels(self) -> dict[str, str]:
        """Return what the tags mark."""
        if self.entity_types is None:
            return {"tags": "mark no entities"}
        form = "BIO" if self.scheme == "bio" else "BIO or IOB1"
        return {"tags": f"mark entities in {form}: {', '.join(self.entity_types)}"}

    def add_layers(self, context: TaskContext) -> None:
        """Create the classifier of hidden states."""
        self.add_classifier(context.encoder, len(self._classes))

    def labels_of(self, example: Example) -> Iterable[str]:
        """Return the tags of an example as they are trained."""
        tags = [str(tag) for tag in example.values["tags"]]
        if self.scheme == "iob1" or (self.scheme == "auto" and all(map(is_entity_tag, tags))):
            return to_bio(tags)
        return tags

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return the windows of a sentence; none of an example without words, which is counted.

        Raises:
            DataError: if there are not as many tags as words, or a tag is not known.
        """
        words = example.values["words"]
        tags = self._tag_ids(example)
        if not words:
            self.notes["rows without words left out"] += 1
            return []
        windows = word_windows(words, tokenizer, max_seq_length, self.window_stride)
        if len(windows) > 1:
            self.notes["sentences in several windows"] += 1
        cut = sum(window.truncated > 0 for window in windows)
        if cut:
            self.notes["windows with a word that is longer than a window, its end cut off"] += cut
        return [_features(window, tags) for window in windows]

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        """Return the first tokens of words."""
        return batch.fields["is_predicted"].nonzero().squeeze(-1)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the words that are predicted."""
        labels = batch.fields["tags"][batch.fields["is_predicted"]]
        return classification_loss(self.logits(output, batch), labels)

    def logits(self, output: EncoderOutput, batch: PackedBatch) -> Tensor:
        """Return ``(K, C)`` float32 scores of C tags for the K words predicted in the batch."""
        return self.classify(output.tokens[batch.fields["is_predicted"]])  # (T, H) -> (K, C)

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return numbers, tags and probabilities of the words that each sequence predicts."""
        is_predicted = batch.fields["is_predicted"]
        scores, ids = self.logits(output, batch).softmax(-1).max(-1)
        words = batch.fields["word"][is_predicted].tolist()
        tags = [self._classes.names[number] for number in ids.tolist()]
        found = list(zip(words, tags, scores.tolist(), strict=True))
        # is_predicted [0, 1, 1, 0] and [0, 1, 0] -> ends [2, 3]: the words of a sequence in found
        ends = torch.cumsum(is_predicted, 0)[batch.cu_seqlens[1:].long() - 1].tolist()
        parts = [found[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        return [
            {
                "words": [word for word, _, _ in part],
                "tags": [tag for _, tag, _ in part],
                "scores": [score for _, _, score in part],
            }
            for part in parts
        ]

    def merge(self, example: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return tags, their probabilities, and the entities that they mark.

        Returns:
            ``tags`` and ``scores``, one for each word: in BIO if they mark entities, as the
            classifier chose them, so that an entity may begin with ``I-``. ``entities``, unless
            they mark none: ``{"type", "start_word", "end_word", "text"}``, the last word excluded.
            Of a text in place of words also ``words``, ``offsets`` ``[start, end]`` of each in the
            text's characters, and ``start`` and ``end`` of entities.
        """
        words = words_as_given(example.values["words"], example.row)
        tags, scores = [""] * len(words), [0.0] * len(words)
        for part in parts:
            for word, tag, score in zip(part["words"], part["tags"], part["scores"], strict=True):
                tags[word], scores[word] = tag, score
        merged: dict[str, Any] = {"tags": tags, "scores": scores}
        places = word_places(words, example.row)
        if places is not None:  # the row has a text: whose words they are
            given = {} if "words" in example.row else {"words": words}
            merged = {**given, "offsets": places, **merged}
        if self.entity_types is not None:
            merged["entities"] = [
                {
                    "type": entity.type,
                    "start_word": entity.start_word,
                    "end_word": entity.end_word,
                    "text": " ".join(words[entity.start_word : entity.end_word]),
                    **_span(places, entity.start_word, entity.end_word),
                }
                for entity in entities(tags)
            ]
        return merged

    def score(
        self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        """Return the scores of entities and words over all examples."""
        gold = [self._tags(example) for example in examples]
        predicted = [prediction["tags"] for prediction in predictions]
        truth = np.array([tag for tags in gold for tag in tags], np.str_)
        guess = np.array([tag for tags in predicted for tag in tags], np.str_)
        majority = max(zip(self._classes.counts, self._classes.names, strict=True))[1]
        scores = {
            "accuracy": _share(guess == truth),
            "majority_accuracy": _share(truth == majority),
        }
        if self.entity_types is None:
            return scores
        return entity_scores(gold, predicted, self.entity_types) | scores

    def score_names(self) -> list[str]:
        """Return the names that :meth:`score` gives; those of the types after :meth:`build`."""
        entity = [] if self.entity_types is None else entity_score_names(self.entity_types)
        return [*entity, "accuracy", "majority_accuracy"]

    def warning(self, values: dict[str, float]) -> str | None:
        """Return a warning if no entity was found, or words got nothing but the commonest tag."""
        if values.get("f1") == 0:
            return "no entity was found right (f1 0); train longer or with another learning rate"
        if self.entity_types is None and values["accuracy"] <= values["majority_accuracy"]:
            return "no better than giving every word the commonest tag of the training data"
        return None

    @property
    def _classes(self) -> Labels:
        assert self.labels is not None
        return self.labels

    def _tags(self, example: Example) -> list[str]:
        """Return an example's tags as they are trained."""
        tags = [str(tag) for tag in example.values["tags"]]
        if self.entity_types is None or self.scheme == "bio":
            return tags
        return to_bio(tags)

    def _tag_ids(self, example: Example) -> list[int] | None:
        if "tags" not in example.values:
            return None
        words, raw = example.values["words"], example.values["tags"]
        if len(raw) != len(words):
            raise DataError(
                f"{example.where}: tags: found {len(raw)} for {len(words)} words, expected a tag "
                "for each word"
            )
        tags = self._tags(example)
        changed = sum(str(old) != new for old, new in zip(raw, tags, strict=True))
        if changed:
            self.notes["tags I- that begin an entity (IOB1), read as B-"] += changed
        return [self._classes.id_of(tag, example.where, "tags") for tag in tags]


def _features(window: WordWindow, tags: Sequence[int] | None) -> Features:
    fields: dict[str, Any] = {"word": window.word, "is_predicted": window.is_predicted}
    if tags is not None:
        labels = np.full(len(window.input_ids), _NOT_PREDICTED, np.int64)
        labels[window.is_predicted] = np.asarray(tags)[window.word[window.is_predicted]]
        fields["tags"] = labels
    return Features(
        input_ids=window.input_ids,
        token_type_ids=[0] * len(window.input_ids),
        fields=fields,
        count=int(window.is_predicted.sum()),
        truncated=window.truncated,
    )


def _share(holds: Any) -> float:  # noqa: ANN401  an array, or a bool of two empty ones
    return float(np.mean(holds)) if np.size(holds) else 0.0


def _span(places: list[list[int]] | None, first: int, end: int) -> dict[str, int]:
    return {} if places is None else {"start": places[first][0], "end": places[end - 1][1]}
