"""Which tokens are masked, and what becomes of them (paper sec. 3.1, task 1).

With NumPy alone: `bertlab prepare`, whose report counts masks, loads no layers and metrics.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from bertlab.api.batch import IntArray, PackedSequences
from bertlab.api.tokenizer import BoolArray, word_starts
from bertlab.errors import ConfigError, check_share
from bertlab.plugins.index import load_class

if TYPE_CHECKING:
    from bertlab.api.rng import CounterRNG
    from bertlab.api.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenClasses:
    """What masking has to know of a vocabulary.

    Attributes:
        special: ``(V,)`` bool, True for ``[CLS]``, ``[UNK]`` and the like: never selected.
        continuation: ``(V,)`` bool, True for ids that continue a word (``##ing``).
        mask_id: id of ``[MASK]``.
        closing: ``(V,)`` bool, True for ids behind which a word begins; None if there are none.
    """

    special: BoolArray
    continuation: BoolArray
    mask_id: int
    closing: BoolArray | None = None

    @classmethod
    def of(cls, tokenizer: "Tokenizer") -> "TokenClasses":
        """Return the classes of a tokenizer's vocabulary."""
        return cls(
            tokenizer.special_mask,
            tokenizer.continuation_mask,
            tokenizer.mask_id,
            tokenizer.closing_mask,
        )

    @cached_property
    def ordinary_ids(self) -> IntArray:
        """``(V - specials,)`` int64 ids that a random replacement is drawn from."""
        return np.flatnonzero(~self.special)

    def word_starts(self, ids: IntArray) -> BoolArray:
        """Return ``(…, N)`` bool, True for those of ``(…, N)`` ids that start a word."""
        return word_starts(ids, self.continuation, self.closing)

    def countable(self, sequences: PackedSequences) -> BoolArray:
        """Return ``(T,)`` bool, True for corpus tokens that are not special."""
        return ~self.special[sequences.input_ids] & (sequences.corpus_offsets >= 0)


@dataclass(frozen=True)
class MaskingRecipe:
    """How much is masked, in what units, and what a selected token becomes (paper sec. 3.1).

    Attributes:
        rate: share of the maskable tokens that are selected, over 0 and at most 1.
        unit: name of a :class:`MaskingUnit`: ``token``, ``whole_word``, or of a package.
        mask_share: share of the selected that become ``[MASK]``.
        random_share: share that become a uniformly random ordinary token.
        keep_share: share that stay as they are.
        objective: whose keys a refusal names; recipes of two objectives may be equal.

    Raises:
        ConfigError: a value is out of range, or the three shares do not sum to 1.
        UnknownPluginError: there is no such unit.
    """

    rate: float = 0.15
    unit: str = "token"
    mask_share: float = 0.8
    random_share: float = 0.1
    keep_share: float = 0.1
    objective: str = field(default="mlm", compare=False)

    def __post_init__(self) -> None:
        key = f"model.objectives.{self.objective}"
        if not 0 < self.rate <= 1:
            raise ConfigError(f"{key}.rate: found {self.rate}, expected over 0 and at most 1")
        masking_unit(self.unit)
        shares = {f.name: getattr(self, f.name) for f in fields(self) if f.name.endswith("_share")}
        for name, share in shares.items():
            check_share(f"{key}.{name}", share)
        total = sum(shares.values())
        if not math.isclose(total, 1, abs_tol=1e-6):
            found = ", ".join(f"{name} {share}" for name, share in shares.items())
            raise ConfigError(f"{key}: found {found} (sum {total:g}), expected shares of sum 1")


@dataclass(frozen=True)
class KeyedDraws:
    """Random numbers that belong to tokens, wherever in a batch these stand."""

    rng: "CounterRNG"
    sequence_counters: tuple[IntArray, ...]  # (B,) int64 each, which together name a sequence
    token_counter: IntArray  # (T,) int64, which name a token within its sequence's name
    sequence_of_token: IntArray  # (T,)

    def shuffle(self, positions: IntArray) -> IntArray:
        """Return the order that puts ``positions``, fewer than 2**32, in random order."""
        counters, rows = self._at(positions)
        bits = self.rng.child("order").bits(*counters, rows=rows)
        # key above, number below: sorting values takes a third of an argsort's time, and a tie of
        # keys still falls the same way in every batch
        keyed = (bits >> np.uint64(32) << np.uint64(32)) | np.arange(len(bits), dtype=np.uint64)
        return (np.sort(keyed) & np.uint64(0xFFFFFFFF)).astype(np.int64)

    def uniform(self, purpose: str, positions: IntArray) -> npt.NDArray[np.float64]:
        """Return draws from [0, 1) for ``positions``, independent between purposes."""
        counters, rows = self._at(positions)
        return self.rng.child(purpose).uniform(*counters, rows=rows)

    def pick(self, ids: IntArray, positions: IntArray) -> IntArray:
        """Return one of ``ids``, uniformly, for each of ``positions``."""
        counters, rows = self._at(positions)
        return ids[self.rng.child("replacement").integers(len(ids), *counters, rows=rows)]

    def _at(self, positions: IntArray) -> tuple[tuple[IntArray, ...], IntArray]:
        counters = (*self.sequence_counters, self.token_counter[positions])
        return counters, self.sequence_of_token[positions]


def dynamic_draws(sequences: PackedSequences, rng: "CounterRNG") -> KeyedDraws:
    """Key draws by (epoch, index, position): new masks each time a sequence is seen."""
    names = (sequences.epochs, sequences.indices)
    rows = sequences.sequence_of_token
    return KeyedDraws(rng.child("dynamic"), names, sequences.position_ids, rows)


def static_draws(sequences: PackedSequences, rng: "CounterRNG", copies: int) -> KeyedDraws:
    """Key draws by (epoch mod copies, place in the corpus), as text that was masked once."""
    names = (sequences.epochs % copies,)
    rows = sequences.sequence_of_token
    return KeyedDraws(rng.child("static"), names, sequences.corpus_offsets, rows)


def evaluation_draws(sequences: PackedSequences, rng: "CounterRNG") -> KeyedDraws:
    """Key draws by (index, position): the same masks in every epoch."""
    names = (sequences.indices,)
    rows = sequences.sequence_of_token
    return KeyedDraws(rng.child("evaluation"), names, sequences.position_ids, rows)


@dataclass(frozen=True)
class MaskableTokens:
    """The tokens of a batch that may be masked.

    Attributes:
        sequences: the batch; not to be changed.
        positions: ``(M,)`` int64, their ascending flat positions.
        classes: of the vocabulary.
        draws: random numbers of the tokens.
    """

    sequences: PackedSequences
    positions: IntArray
    classes: TokenClasses
    draws: KeyedDraws

    @cached_property
    def run_starts(self) -> BoolArray:
        """``(M,)`` bool, True where no maskable token of the sequence stands just before."""
        starts = np.ones(len(self.positions), dtype=bool)
        sequence = self.sequences.sequence_of_token[self.positions]
        starts[1:] = (np.diff(self.positions) != 1) | (np.diff(sequence) != 0)
        return starts

    @cached_property
    def words(self) -> IntArray:
        """``(W,)`` ascending indices into ``positions`` at which a word begins."""
        # ids [CLS] play ##ing [SEP] [CLS] a cat [SEP]: positions [1, 2, 5, 6] -> runs begin at 0
        # and 2 of them, words at [0, 2, 3]
        ids = self.sequences.input_ids[self.positions]
        return np.flatnonzero(self.run_starts | self.classes.word_starts(ids))


class MaskingUnit(ABC):
    """What masking selects together: a token, a word, or more; made without arguments.

    Attributes:
        one_fate: all tokens of a unit become ``[MASK]``, or random ones, or stay; else each for
            itself.
    """

    one_fate: ClassVar[bool] = False

    @abstractmethod
    def starts(self, tokens: MaskableTokens) -> IntArray:
        """Return the ``(U,)`` ascending indices into ``tokens.positions`` at which a unit begins.

        A unit ends where the next begins. It crosses no special token and no sequence, so that each
        of ``tokens.run_starts`` is a start.
        """


class TokenUnit(MaskingUnit):
    """Each token by itself."""

    def starts(self, tokens: MaskableTokens) -> IntArray:  # noqa: D102  the contract's
        return np.arange(len(tokens.positions))


class WholeWord(MaskingUnit):
    """All pieces of a word."""

    def starts(self, tokens: MaskableTokens) -> IntArray:  # noqa: D102
        return tokens.words


@cache
def masking_unit(name: str) -> MaskingUnit:
    """Return the unit of an entry point's name."""
    return load_class("masking_unit", name, MaskingUnit)()


def select_units(
    sequence: IntArray, lengths: IntArray, starts: IntArray, rate: float, draws: KeyedDraws
) -> BoolArray:
    """Select units ``(U,)`` at random until each sequence's budget of tokens is spent.

    The budget is ``rate`` times the maskable tokens, rounded up or down at random so that its
    expectation is exact, and at least 1. The unit that crosses the budget is taken with
    probability (rest / its length), which keeps the expectation. Each unit is given by its
    ascending sequence number, its tokens, and the flat position of the first.
    """
    first = np.flatnonzero(np.diff(sequence, prepend=-1))  # first unit of each non-empty sequence
    # sequence [0, 0, 2], lengths [2, 1, 3] -> first [0, 2], before [0, 2, 3], maskable [3, 3]
    before = np.cumsum(lengths) - lengths
    maskable = np.diff(before[first], append=lengths.sum())
    budget = np.floor(rate * maskable + draws.uniform("budget", starts[first])).astype(np.int64)
    end = before[first] + np.clip(budget, 1, maskable)  # in tokens, counted from the batch's start

    units = np.diff(first, append=len(sequence))
    shuffled = draws.shuffle(starts)
    # one shuffle of all units, then a stable sort by sequence: random order in each sequence
    narrow = np.min_scalar_type(len(first))  # 16 bits or fewer make the stable sort a radix sort
    group = np.repeat(np.arange(len(first), dtype=narrow), units)
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    sorted_lengths = lengths[order]
    # what is left of its sequence's budget for each unit, if all before it are selected
    rest = np.repeat(end, units) - (np.cumsum(sorted_lengths) - sorted_lengths)
    selected = np.zeros(len(sequence), dtype=bool)
    selected[order] = rest >= sorted_lengths
    crossing = np.flatnonzero((rest > 0) & (rest < sorted_lengths))
    unit = order[crossing]
    # a word of 3 tokens that finds 1 left is taken in a third of the draws
    selected[unit] = draws.uniform("crossing", starts[unit]) * lengths[unit] < rest[crossing]
    return selected


def mask_tokens(
    sequences: PackedSequences, recipe: MaskingRecipe, classes: TokenClasses, draws: KeyedDraws
) -> tuple[IntArray, IntArray]:
    """Select tokens of a batch and overwrite them in ``sequences.input_ids``.

    Args:
        sequences: the batch; written to.
        recipe: how much, in what units, and what becomes of it.
        classes: what may be selected, and what it may become.
        draws: random numbers of the tokens.

    Returns:
        ``(K,)`` ascending flat positions of the selected and ``(K,)`` ids that stood there. K may
        be 0 where nothing is maskable.
    """
    tokens = np.flatnonzero(classes.countable(sequences))
    unit = masking_unit(recipe.unit)
    begins = unit.starts(MaskableTokens(sequences, tokens, classes, draws))
    lengths = np.diff(begins, append=len(tokens))
    starts = tokens[begins]
    sequence = sequences.sequence_of_token[starts]
    selected = select_units(sequence, lengths, starts, recipe.rate, draws)

    positions = tokens[np.repeat(selected, lengths)]
    labels = sequences.input_ids[positions]
    if unit.one_fate:
        fate = np.repeat(draws.uniform("fate", starts[selected]), lengths[selected])
    else:
        fate = draws.uniform("fate", positions)
    # fate below 0.8: [MASK]; below 0.9: random; the rest stays (of 80/10/10)
    sequences.input_ids[positions[fate < recipe.mask_share]] = classes.mask_id
    random = (fate >= recipe.mask_share) & (fate < recipe.mask_share + recipe.random_share)
    replaced = positions[random]
    sequences.input_ids[replaced] = draws.pick(classes.ordinary_ids, replaced)
    return positions, labels
