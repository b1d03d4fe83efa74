"""The contract of tokenizers: what a model needs of one, and how a new kind is trained."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from bertlab.errors import DataError, TokenizerError

BoolArray = npt.NDArray[np.bool_]
TokenArray = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a vocabulary by their role; the defaults are BERT's.

    Attributes:
        pad: fills up short sequences.
        unk: stands for what has no token.
        cls: begins every sequence.
        sep: ends every segment.
        mask: stands for a token that is to be predicted; None if there is none.
    """

    pad: str = "[PAD]"
    unk: str = "[UNK]"
    cls: str = "[CLS]"
    sep: str = "[SEP]"
    mask: str | None = "[MASK]"

    def names(self) -> list[str]:
        """Return the tokens in the order of the roles, without a mask that there is not."""
        return [token for token in asdict(self).values() if token is not None]

    def huggingface(self) -> dict[str, str]:
        """Return the tokens under the names of ``transformers``: ``{"pad_token": "[PAD]", …}``."""
        return {f"{role}_token": token for role, token in asdict(self).items() if token is not None}


@dataclass(frozen=True)
class PairLayout:
    """How the two segments of a pair are joined.

    Attributes:
        separators: separators between the segments: 1 as BERT has, 2 as RoBERTa has.
        second_type: token type of the second segment: 1 as BERT has, 0 as RoBERTa has.
    """

    separators: int = 1
    second_type: int = 1


@dataclass(frozen=True)
class TokenizerFiles:
    """What a tokenizer is read from.

    Attributes:
        path: the ``tokenizer.json`` or the ``vocab.txt``; of a tokenizer that no file holds, where
            it comes from.
        content: of the ``tokenizer.json``; None if it is a ``vocab.txt``.
        config: content of the ``tokenizer_config.json`` beside it, or the special tokens by their
            role, ``{"cls_token": "[CLS]", …}``; empty if neither is known.
    """

    path: Path
    content: dict[str, Any] | None
    config: dict[str, Any]

    def set_in_config(self, key: str) -> bool | None:
        """Return a switch of ``tokenizer_config.json``; None if it is not there.

        Raises:
            TokenizerError: it is something else than true or false.
        """
        value = self.config.get(key)
        if not isinstance(value, bool | None):
            told = f"{self.path.parent / 'tokenizer_config.json'}: {key} is {value!r}"
            raise TokenizerError(f"{told}, expected true or false")
        return value


class Tokenizer(ABC):
    """Text to ids and back: all that encoders, tasks, data and checkpoints need of a tokenizer.

    It is the content of a ``tokenizer.json`` and the roles of its special tokens. It is cheap to
    pickle: the ``tokenizers`` backend is made again on first use.

    The type of the model in the ``tokenizer.json`` says which class reads it: ``WordPiece``,
    ``BPE``, … are entry points of the group ``bertlab.tokenizer_models``. Only the class that is
    needed is imported, and nothing in the files is imported or executed.

    Args:
        state: checked content of a ``tokenizer.json``; :func:`bertlab.load_tokenizer` reads one.
        special: the special tokens by their role; all are in the vocabulary.
        layout: how pairs are joined.
        source: what to name in errors.

    Attributes:
        special: the special tokens by their role.
        layout: how pairs are joined.
        source: where it comes from.
        vocab_size: number of ids V.
        lowercase: whether text is lower-cased (uncased models).
        dtype: smallest unsigned integer type of the ids: uint16 up to 65,536 ids, else uint32.
        pad_id, unk_id, cls_id, sep_id: ids of the special tokens.
        mask_id: id of the mask token; -1 if there is none.
        special_ids: int64 ids of all special tokens, ascending.
        special_mask: ``(V,)`` bool, True for special tokens.
        continuation_mask: ``(V,)`` bool, True for tokens that continue a word: ``##ing`` of
            WordPiece, ``ing`` beside ``Ġing`` of byte-level BPE. It works on stored ids, and
            decides what whole-word masking takes together: see :func:`word_starts`.
        closing_mask: ``(V,)`` bool, True for tokens behind which a word begins whatever follows:
            ``Ġ(`` of byte-level BPE, before ``naive``; None if there is none, as in WordPiece.
        fingerprint: SHA-256 in hex of everything that decides the ids.
    """

    def __init__(
        self, state: dict[str, Any], special: SpecialTokens, layout: PairLayout, source: str
    ) -> None:
        self.special, self.layout, self.source = special, layout, source
        self._json = json.dumps(state, ensure_ascii=False)
        try:
            _ = self._backend
        except Exception as error:
            raise TokenizerError(f"{source}: not usable: {error}") from error
        self.fingerprint = hashlib.sha256(
            json.dumps(self._identity(state), sort_keys=True).encode("ascii")
        ).hexdigest()
        added = state["added_tokens"]
        ids: dict[str, int] = model_ids(state["model"])
        ids |= {token["content"]: token["id"] for token in added}
        self._tokens: list[str] = sorted(ids, key=ids.__getitem__)
        self.vocab_size = len(ids)
        self.dtype: np.dtype[np.unsignedinteger] = np.dtype(
            np.uint16 if len(ids) <= 2**16 else np.uint32  # two bytes hold ids to 65,535
        )
        self.pad_id, self.unk_id = ids[special.pad], ids[special.unk]
        self.cls_id, self.sep_id = ids[special.cls], ids[special.sep]
        self.mask_id = -1 if special.mask is None else ids[special.mask]
        self.special_ids = np.sort(
            np.array([token["id"] for token in added if token["special"]], np.int64)
        )
        self.special_mask = np.zeros(self.vocab_size, np.bool_)
        self.special_mask[self.special_ids] = True
        continuing, closing = self._word_marks(state, self._tokens)
        self.continuation_mask = continuing & ~self.special_mask
        self.closing_mask = None if closing is None else closing | self.special_mask
        self.lowercase = self._is_uncased(state)

    @classmethod
    @abstractmethod
    def from_files(cls, files: TokenizerFiles) -> "Tokenizer":
        """Return the tokenizer of files, of a checkpoint, or of a kind that was just trained.

        Raises:
            TokenizerError: it is damaged, or a role has no special token.
        """

    @abstractmethod
    def _word_marks(
        self, state: dict[str, Any], tokens: Sequence[str]
    ) -> tuple[BoolArray, BoolArray | None]:
        """Return ``continuation_mask`` and ``closing_mask``; special tokens do not matter."""

    @abstractmethod
    def _is_uncased(self, state: dict[str, Any]) -> bool:
        """Whether text is lower-cased."""

    @abstractmethod
    def _identity(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return what decides the ids, as plain data: it is hashed."""

    @abstractmethod
    def to_json(self) -> str:
        """Return the whole tokenizer as text, which :func:`tokenizer_from_json` reads again."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the files from which ``transformers`` loads an equal tokenizer.

        The folder is made if need be.

        Raises:
            OSError: the folder cannot be written.
        """

    @abstractmethod
    def encode_texts(self, texts: Sequence[str]) -> tuple[TokenArray, npt.NDArray[np.int64]]:
        """Tokenize many pieces of running text, sentences or words, as fast as a corpus needs.

        Each piece is read as one that stands behind a space, so that a sentence or a word has the
        same ids wherever it stands.

        Args:
            texts: N texts. Special tokens in them are plain text and never become special ids.

        Returns:
            ids: of all texts laid end to end, in ``dtype``.
            lengths: ``(N,)`` number of ids of each text.
        """

    @cached_property
    def _backend(self) -> Backend:
        return Backend.from_str(self._json)

    def __getstate__(self) -> dict[str, Any]:
        # workers make them from the JSON
        made_again = ("_backend", "_plain_backend", "_word_ids", "_ids")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self._tokens)}

    def token(self, token_id: int) -> str:
        """Return the token of an id, in ``[0, V)``, as the vocabulary has it: ``##ing``."""
        return self._tokens[token_id]

    def token_id(self, token: str) -> int:
        """Return the id of a token; ``unk_id`` if it is not in the vocabulary."""
        return self._ids.get(token, self.unk_id)

    def readable(self, token_id: int) -> str:
        """Return what to show a reader for an id: the token, or its text where tokens are codes."""
        return self._tokens[token_id]

    def require_mask(self, key: str) -> None:
        """Raise TokenizerError if there is no mask token, which the config key ``key`` needs."""
        if self.special.mask is None:
            raise TokenizerError(
                f"data.tokenizer: {self.source} has no mask token, which {key} needs; give a "
                "tokenizer with [MASK] or <mask>, or name its own as mask_token in "
                "tokenizer_config.json; model.objectives: [clm] needs none"
            )

    def require_special(self, tokens: Sequence[str], key: str) -> None:
        """Raise TokenizerError if it lacks one of the special tokens that ``key`` needs."""
        known = {self._tokens[number] for number in self.special_ids}
        if lacking := " ".join(token for token in tokens if token not in known):
            raise TokenizerError(
                f"data.tokenizer: {self.source} lacks {lacking}, special tokens that {key} needs; "
                f"`bertlab tokenizer --extend MODEL --special_tokens '{lacking}' --output FOLDER` "
                "adds them to a model, for model.init_from"
            )

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without those that begin and end a sequence.

        Special tokens in the text, such as ``[MASK]``, become special ids.
        """
        ids: list[int] = self._encoded(text).ids
        return ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text as :meth:`encode`, and the characters that each stands for.

        Returns:
            K ids, and K pairs (start, end) in characters of ``text`` as it was given, end excluded,
            without the spaces around a token.
        """
        encoding = self._encoded(text)
        return encoding.ids, encoding.offsets

    def _encoded(self, text: str) -> Any:  # noqa: ANN401  the library's Encoding
        try:
            return self._backend.encode(text, add_special_tokens=False)
        except TypeError:  # "\ud83d", half of an emoji that was cut
            raise DataError(f"found {text!r:.80}, expected text of whole characters") from None

    def words(self, text: str) -> list[str]:
        """Return the words and punctuation marks of a text, normalized, before they are split."""
        normalizer, splitter = self._backend.normalizer, self._backend.pre_tokenizer
        if normalizer is not None:
            text = normalizer.normalize_str(text)
        return [word for word, _ in splitter.pre_tokenize_str(text)] if splitter else [text]

    def unknown_words(self, text: str) -> list[str]:
        """Return those :meth:`words` of a text of which a part has no token."""
        model = self._backend.model
        return [
            word
            for word in self.words(text)
            if any(token.id == self.unk_id for token in model.tokenize(word))
        ]

    def room(self, max_seq_length: int, segments: int = 1) -> int:
        """Return how many tokens of text fit into a sequence beside its special tokens.

        Args:
            max_seq_length: most tokens of a sequence, special tokens included.
            segments: 1, or 2 for a pair.
        """
        # [CLS] A [SEP]: 2; [CLS] A [SEP] B [SEP]: 3; <s> A </s> </s> B </s>: 4
        return max_seq_length - (2 if segments == 1 else 2 + self.layout.separators)

    def build_inputs(
        self, a: Sequence[int], b: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]`` (paper fig. 2), or as RoBERTa.

        Args:
            a: ids of segment A.
            b: ids of segment B, if there is one.

        Returns:
            input_ids: the ids.
            token_type_ids: 0 for all before segment B, ``layout.second_type`` from there on.
        """
        input_ids = [self.cls_id, *a, self.sep_id]
        token_type_ids = [0] * len(input_ids)
        if b is not None:
            more = [self.sep_id] * (self.layout.separators - 1)
            input_ids += [*more, *b, self.sep_id]
            token_type_ids += [0] * len(more) + [self.layout.second_type] * (len(b) + 1)
        return input_ids, token_type_ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, pieces joined to words; special tokens are kept."""
        text: str = self._backend.decode([int(number) for number in ids], skip_special_tokens=False)
        return text


class TokenizerKind(ABC):
    """A way to make a tokenizer from text, such as WordPiece.

    The arguments of ``__init__`` are the user's settings and become config keys below
    ``data.tokenizer_kind``. They are kept as plain attributes of the same names: settings and
    ``version`` say in the cache whether a tokenizer has been trained before.

    Attributes:
        version: raised whenever the same text and settings give another tokenizer than before.
    """

    version: ClassVar[int] = 1

    @property
    def special_tokens(self) -> SpecialTokens:
        """The special tokens by their role, which :meth:`train` puts into the vocabulary."""
        return SpecialTokens()

    @abstractmethod
    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        """Train on text; the same text gives the same tokenizer in every run.

        What it returns is all that is kept: files, checkpoints and token stores hold its
        ``tokenizer.json``, which does not need the kind to be read again, but the class of its
        model's type: see :class:`Tokenizer`. So it is made of the parts of the ``tokenizers``
        library, and its tokens show what starts a word. A WordPiece model is read by the core; BPE,
        Unigram and WordLevel models by bertlab-modern, with a byte-level or metaspace
        pre-tokenizer, or a prefix of pieces that continue a word.

        Args:
            texts: pieces of any size; read once. A piece does not end within a word.
            vocab_size: number of tokens to reach, special tokens included.
            lowercase: ``data.lowercase``: whether text is lower-cased.

        Raises:
            ConfigError: a setting or ``vocab_size`` is out of range.
            TokenizerError: there is no text.
        """

    def settings(self) -> dict[str, Any]:
        """Return the settings by name, as plain data."""
        return {name: value for name, value in vars(self).items() if name[0] != "_"}


def word_starts(
    ids: npt.NDArray[np.integer[Any]], continuation: BoolArray, closing: BoolArray | None
) -> BoolArray:
    """Return which tokens of running text start a word.

    Args:
        ids: ``(…, N)`` ids.
        continuation: ``continuation_mask`` of the tokenizer.
        closing: its ``closing_mask``.

    Returns:
        ``(…, N)`` bool. The first token starts one if it does not look like a continuation.
    """
    starts: BoolArray = ~continuation[ids]
    if closing is not None:
        # Ġ( na ive -> [1, 0, 0] by their looks; behind Ġ( a word begins: [1, 1, 0]
        starts[..., 1:] |= closing[ids[..., :-1]]
    return starts


def model_ids(model: dict[str, Any]) -> dict[str, int]:
    """Return the id of each token of a model of ``tokenizer.json``, in the order of the file."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return dict(vocabulary)
    # Unigram: [["<unk>", 0.0], ["▁the", -3.2]]
    return {piece: number for number, (piece, _) in enumerate(vocabulary)}
