"""BERT's WordPiece tokenizer (paper sec. 3): text to ids and back."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from bertlab.errors import TokenizerError
from bertlab.files import write_json, write_text
from bertlab.tokenizer.files import (
    SPECIAL_TOKENS,
    checked_state,
    read_state,
    vocabulary_state,
)
from bertlab.tokenizer.word_cache import WordIds

TokenArray = npt.NDArray[np.unsignedinteger]


class WordPieceTokenizer:
    """Splits text into word pieces with the same ids as the original BERT.

    Cheap to pickle: the ``tokenizers`` backend is made again on first use.

    Args:
        state: checked content of a ``tokenizer.json``; use :meth:`load` or
            :meth:`from_vocabulary` to get one.
        source: what to name in errors.

    Attributes:
        vocab_size: number of ids V.
        lowercase: whether text is lower-cased (uncased models).
        dtype: smallest unsigned integer type of the ids: uint16 up to 65,536 ids, else uint32.
        special_ids: int64 ids of all special tokens, ascending.
        special_mask: ``(V,)`` bool, True for special tokens.
        continuation_mask: ``(V,)`` bool, True for pieces that continue a word (``##ing``).
        fingerprint: SHA-256 in hex of everything that decides the ids.
    """

    def __init__(self, state: dict[str, Any], source: str = "tokenizer") -> None:
        self._json = json.dumps(state, ensure_ascii=False)
        try:
            _ = self._backend
        except Exception as error:
            raise TokenizerError(f"{source}: not usable: {error}") from error
        self.fingerprint = hashlib.sha256(
            json.dumps(state, sort_keys=True).encode("ascii")
        ).hexdigest()
        model, added = state["model"], state["added_tokens"]
        ids: dict[str, int] = model["vocab"] | {token["content"]: token["id"] for token in added}
        self._tokens = sorted(ids, key=ids.__getitem__)
        self.vocab_size = len(ids)
        self.dtype: np.dtype[np.unsignedinteger] = np.dtype(
            np.uint16 if len(ids) <= 2**16 else np.uint32  # two bytes hold ids to 65,535
        )
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            ids[token] for token in SPECIAL_TOKENS
        )
        self.special_ids = np.sort(
            np.array([token["id"] for token in added if token["special"]], np.int64)
        )
        self.special_mask = np.zeros(self.vocab_size, np.bool_)
        self.special_mask[self.special_ids] = True
        prefix: str = model["continuing_subword_prefix"]
        # "##" alone is a word of two number signs
        continues = [token.startswith(prefix) and token != prefix for token in self._tokens]
        self.continuation_mask = np.array(continues, np.bool_) & ~self.special_mask
        normalizer = state["normalizer"]
        bert = isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"
        self.lowercase = bert and bool(normalizer["lowercase"])
        # Word by word only where words are known not to influence each other.
        self._by_words = (
            bert
            and normalizer["clean_text"]
            and state["pre_tokenizer"] == {"type": "BertPreTokenizer"}
            and all(token["special"] for token in added)
        )

    @classmethod
    def from_vocabulary(cls, tokens: Sequence[str], lowercase: bool = True) -> "WordPieceTokenizer":
        """Return BERT's tokenizer for a list of tokens, one of each id."""
        return cls(vocabulary_state(tokens, lowercase))

    @classmethod
    def load(cls, path: str | Path, lowercase: bool | None = None) -> "WordPieceTokenizer":
        """Load a ``vocab.txt``, a ``tokenizer.json`` or a folder with either.

        Nothing in the files is executed; truncation and padding presets are ignored.

        Args:
            path: the file or folder.
            lowercase: overrides ``do_lower_case`` of the folder's ``tokenizer_config.json``. If
                None and no file says it, a vocabulary with capital letters is taken for cased.

        Raises:
            TokenizerError: missing or damaged file, not a WordPiece model, or a vocabulary
                without BERT's special tokens, with duplicates, or empty.
        """
        state, file = read_state(Path(path), lowercase)
        return cls(state, str(file))

    @classmethod
    def from_json(cls, text: str, source: str) -> "WordPieceTokenizer":
        """Read what :meth:`to_json` wrote, for example out of a checkpoint.

        Raises:
            TokenizerError: it is damaged; ``source`` is named.
        """
        try:
            state = json.loads(text)
        except ValueError as error:
            raise TokenizerError(f"{source}: damaged tokenizer: {error}") from None
        return cls(checked_state(state, source))

    def to_json(self) -> str:
        """Return the whole tokenizer in the format of ``tokenizer.json``."""
        return self._json

    @cached_property
    def _backend(self) -> Tokenizer:
        return Tokenizer.from_str(self._json)

    @cached_property
    def _plain_backend(self) -> Tokenizer:
        backend = Tokenizer.from_str(self._json)
        backend.encode_special_tokens = True  # [MASK] in a text -> [ mask ]
        return backend

    @cached_property
    def _word_ids(self) -> WordIds:
        return WordIds(self._plain_backend, self.lowercase, self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        # workers make them from the JSON
        made_again = ("_backend", "_plain_backend", "_word_ids", "_ids")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self._tokens)}

    def token(self, token_id: int) -> str:
        """Return the token of an id, in ``[0, V)``."""
        return self._tokens[token_id]

    def token_id(self, token: str) -> int:
        """Return the id of a token; ``unk_id`` if it is not in the vocabulary."""
        return self._ids.get(token, self.unk_id)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without ``[CLS]`` and ``[SEP]``.

        Special tokens in the text, such as ``[MASK]``, become special ids.
        """
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text as :meth:`encode`, and the characters that each stands for.

        Returns:
            ids: K ids.
            offsets: K pairs (start, end) in characters of ``text`` as it was given, end excluded.
        """
        encoding = self._backend.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def encode_texts(self, texts: Sequence[str]) -> tuple[TokenArray, npt.NDArray[np.int64]]:
        """Tokenize many texts at the speed that a corpus needs.

        Args:
            texts: N texts. Special tokens in them are plain text and never become special ids.

        Returns:
            ids: of all texts laid end to end, in ``dtype``.
            lengths: ``(N,)`` number of ids of each text.
        """
        if self._by_words:
            return self._word_ids.encode(texts)
        rows = [
            row.ids for row in self._plain_backend.encode_batch(texts, add_special_tokens=False)
        ]
        flat = np.fromiter((number for row in rows for number in row), self.dtype)
        return flat, np.fromiter(map(len, rows), np.int64, len(rows))

    def words(self, text: str) -> list[str]:
        """Return the words and punctuation marks of a text, normalized, before WordPiece."""
        normalizer, splitter = self._backend.normalizer, self._backend.pre_tokenizer
        if normalizer is not None:
            text = normalizer.normalize_str(text)
        return [word for word, _ in splitter.pre_tokenize_str(text)] if splitter else [text]

    def unknown_words(self, text: str) -> list[str]:
        """Return those :meth:`words` of a text that become ``[UNK]``."""
        model = self._backend.model
        return [
            word
            for word in self.words(text)
            if any(token.id == self.unk_id for token in model.tokenize(word))
        ]

    def build_inputs(
        self, a: Sequence[int], b: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]`` (paper fig. 2).

        Args:
            a: ids of segment A.
            b: ids of segment B, if there is one.

        Returns:
            input_ids: the ids.
            token_type_ids: 0 up to the first ``[SEP]``, 1 behind it.
        """
        input_ids = [self.cls_id, *a, self.sep_id]
        token_type_ids = [0] * len(input_ids)
        if b is not None:
            input_ids += [*b, self.sep_id]
            token_type_ids += [1] * (len(b) + 1)
        return input_ids, token_type_ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, pieces joined to words; special tokens are kept."""
        text: str = self._backend.decode([int(number) for number in ids], skip_special_tokens=False)
        return text

    def save(self, folder: str | Path) -> None:
        """Write the four files from which ``transformers`` loads an equal tokenizer.

        They are ``tokenizer.json``, ``vocab.txt``, ``tokenizer_config.json`` and
        ``special_tokens_map.json``. The folder is made if need be.

        Raises:
            OSError: the folder cannot be written.
        """
        folder = Path(folder)
        state = json.loads(self._json)
        normalizer = state["normalizer"] or {}
        names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        special = dict(zip(names, SPECIAL_TOKENS, strict=True))
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": normalizer.get("strip_accents", self.lowercase),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in self._tokens))
        write_json(folder / "special_tokens_map.json", special)
        write_json(folder / "tokenizer_config.json", config | special)
        write_json(folder / "tokenizer.json", state)
