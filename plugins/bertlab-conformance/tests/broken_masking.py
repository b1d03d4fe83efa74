"""Masking units, input formats and transforms with one bug each; ``expects`` as of the others."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from bertlab.api.batch import IntArray, PackedSequences
from bertlab.data.sampler import Fields, Pieces
from bertlab.objectives.masking import MaskableTokens
from broken_others import Expects
from good_plugins import GoodFormat, GoodTransform, GoodUnit


class ByPosition(GoodUnit):
    """Takes places in the batch for numbers of maskable tokens."""

    expects: Expects = ("units_begin_in_order", "return ascending indices into tokens.positions")

    def starts(self, tokens: MaskableTokens) -> IntArray:
        return tokens.positions[super().starts(tokens)]


class AcrossSequences(GoodUnit):
    """Pairs the last word of a sequence with the first of the next."""

    expects: Expects = ("units_cross_no_gap", "begins before a special token")

    def starts(self, tokens: MaskableTokens) -> IntArray:
        return tokens.words[::2]


class DrawsAnew(GoodUnit):
    """Draws by numbers of its own, which no resumed run has again."""

    expects: Expects = ("units_are_those_of_a_sequence", "begin a unit in a batch of 6 sequences")
    rng = np.random.default_rng(1)

    def starts(self, tokens: MaskableTokens) -> IntArray:
        begins = (self.rng.random(len(tokens.positions)) < 0.5) | tokens.run_starts
        return np.flatnonzero(begins)


class NeedsATerm(GoodUnit):
    """Begins a unit at the first token, even of none."""

    expects: Expects = ("nothing_to_mask_is_no_error", "1 units begin among 0 tokens")

    def starts(self, tokens: MaskableTokens) -> IntArray:
        return np.union1d([0], super().starts(tokens)).astype(np.int64)


class Lowers(GoodUnit):
    """Marks what it has seen in the batch itself."""

    expects: Expects = ("leaves_the_tokens_alone", "starts() changes its input")

    def starts(self, tokens: MaskableTokens) -> IntArray:
        found = super().starts(tokens)
        tokens.sequences.input_ids[tokens.positions[found]] += 1
        return found


class FateInWords(GoodUnit):
    """Says one_fate in words."""

    expects: Expects = ("one_fate_is_a_bool", "one_fate is 'no'")
    one_fate: ClassVar[Any] = "no"


class TooLong(GoodFormat):
    """Forgets the room of the special tokens."""

    expects: Expects = ("sequences_have_text_and_fit", "the longest has 42")

    def _cut(self, lengths: IntArray) -> None:
        length, self.max_seq_length = self.max_seq_length, self.max_seq_length + 2
        super()._cut(lengths)
        self.max_seq_length = length


class Counting(GoodFormat):
    """Reads on from where the last call ended."""

    expects: Expects = ("a_sequence_goes_by_its_number", "is another when it is asked for alone")
    calls = 0

    def _pieces(self, epochs: IntArray, units: IntArray, max_length: int | None) -> Any:
        self.calls += 1
        return super()._pieces(epochs + self.calls, units, max_length)


class ReadsAll(GoodFormat):
    """Reads the documents that are held out, too."""

    expects: Expects = ("reads_the_given_documents_alone", "it reads document 0")

    def _index(self, documents: IntArray) -> int:
        return super()._index(np.arange(12)) * len(documents) // 12


class FirstHalves(GoodFormat):
    """Leaves out the second half of each text."""

    expects: Expects = ("reads_the_documents_whole", "12 epochs read")

    def _cut(self, lengths: IntArray) -> None:
        super()._cut(lengths // 2)


class SecretPairs(GoodFormat):
    """Labels what has no second segment."""

    expects: Expects = ("has_pairs_is_true", "has_pairs is False; 0 of")

    def sample(
        self, epochs: IntArray, indices: IntArray, max_length: int | None = None
    ) -> PackedSequences:
        found = super().sample(epochs, indices, max_length)
        labels = {"next_sentence_label": np.zeros(len(found.lengths), np.int64)}
        return replace(found, fields={**found.fields, **labels})


class DropsParts(GoodFormat):
    """Cuts off what does not fit for the moment."""

    expects: Expects = ("parts_are_the_whole", "tokens of text in place of")

    def _pieces(
        self, epochs: IntArray, units: IntArray, max_length: int | None
    ) -> tuple[Pieces, Fields]:
        pieces, fields = super()._pieces(epochs, units, None)
        room = self.max_seq_length if max_length is None else max_length
        return replace(pieces, lengths=np.minimum(pieces.lengths, room - 2)), fields


class JoinsWords(GoodTransform):
    """Gives a text where a list of words was."""

    expects: Expects = ("keeps_the_columns", "return a mapping with the same columns")

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
        return {name: "".join(each) for name, each in values.items()}


class SaysNoReason(GoodTransform):
    """Leaves rows out without a reason."""

    expects: Expects = ("keeps_the_columns", "or a text that says why")

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
        return values if len(str(values)) < 100 else ""


class OnceOnly(GoodTransform):
    """Leaves out what it saw before, so that a second evaluation has no rows."""

    expects: Expects = ("a_row_decides_alone", "it was there before")

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
        if str(values) in self.seen:
            return "it was there before"
        self.seen.add(str(values))
        return values


class InPlace(GoodTransform):
    """Writes into the given row."""

    expects: Expects = ("leaves_the_row_alone", "return a new mapping")

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
        values.update({n: v.lower() for n, v in values.items() if isinstance(v, str)})  # type: ignore[attr-defined]
        return values
