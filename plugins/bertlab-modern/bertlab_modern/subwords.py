"""Byte-level BPE, Unigram and WordLevel tokenizers: whatever their ``tokenizer.json`` says."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from bertlab.api import SpecialTokens, Tokenizer
from bertlab.extend import BoolArray, TokenArray, TokenizerFiles, make_folder, parts, write_json
from bertlab_modern.subword_files import checked_subwords, pair_layout, special_tokens
from bertlab_modern.word_starts import METASPACE, word_marks


class SubwordTokenizer(Tokenizer):
    """A tokenizer of which the ``tokenizers`` library does all the work, as in ``transformers``.

    Args:
        content: of a ``tokenizer.json`` with a BPE, Unigram or WordLevel model.
        special: the special tokens by their role.
        source: what to name in errors.

    Raises:
        TokenizerError: it is damaged, or its tokens do not show which of them start a word.
    """

    def __init__(self, content: Mapping[str, Any], special: SpecialTokens, source: str) -> None:
        state = checked_subwords(content, special, source)
        super().__init__(
            state, special, pair_layout(state["post_processor"], special, source), source
        )

    @classmethod
    def from_files(cls, files: TokenizerFiles) -> "SubwordTokenizer":
        """Return the tokenizer of files, of a checkpoint, or of a kind that was just trained.

        Raises:
            TokenizerError: see the class; or a role has no special token.
        """
        source, content = str(files.path), dict(files.content or {})
        prefix = files.set_in_config("add_prefix_space")
        splitter = content.get("pre_tokenizer")
        if prefix is not None and isinstance(splitter, dict) and "add_prefix_space" in splitter:
            # as transformers does: tokenizer_config.json overrides tokenizer.json
            content["pre_tokenizer"] = splitter | {"add_prefix_space": prefix}
        return cls(content, special_tokens(files.config, content, source), source)

    def _word_marks(
        self, state: dict[str, Any], tokens: Sequence[str]
    ) -> tuple[BoolArray, BoolArray | None]:
        return word_marks(state, tokens, self.source)

    def _is_uncased(self, state: dict[str, Any]) -> bool:
        found = list(parts(state["normalizer"]))
        return any(part.get("type") == "Lowercase" or part.get("lowercase") for part in found)

    def _identity(self, state: dict[str, Any]) -> dict[str, Any]:
        return {"tokenizer": state, "special_tokens": self.special.huggingface()}

    def to_json(self) -> str:
        """Return the ``tokenizer.json`` and the roles of its special tokens."""
        return json.dumps(self._identity(json.loads(self._json)), ensure_ascii=False)

    def save(self, folder: str | Path) -> None:
        """Write the three files from which ``transformers`` loads an equal tokenizer.

        They are ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json``. The
        folder is made if need be.

        Raises:
            OSError: the folder cannot be written.
        """
        folder, state = Path(folder), json.loads(self._json)
        special = self.special.huggingface()
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
        }
        splitter = state["pre_tokenizer"]
        if isinstance(splitter, dict) and "add_prefix_space" in splitter:
            # transformers takes it for false if it is not here
            config["add_prefix_space"] = splitter["add_prefix_space"]
        make_folder(folder)
        write_json(folder / "special_tokens_map.json", special)
        write_json(folder / "tokenizer_config.json", config | special)
        write_json(folder / "tokenizer.json", state)

    @cached_property
    def _plain_backend(self) -> Backend:
        """A backend to which special tokens in a text are plain text."""
        state = json.loads(self._json)
        special = {token["content"] for token in state["added_tokens"] if token["special"]}
        # "<s>" is a piece of a Unigram like any other and would be found in text. " <s>" is not: a
        # model never sees a space
        hidden = {token: f" {token}" for token in special}
        for token in state["added_tokens"]:
            token["content"] = hidden.get(token["content"], token["content"])
        model = state["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {
                hidden.get(token, token): number for token, number in model["vocab"].items()
            }
        else:
            model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in model["vocab"]]
        if "unk_token" in model:
            model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
        state["post_processor"] = None
        backend = Backend.from_str(json.dumps(state, ensure_ascii=False))
        backend.encode_special_tokens = True
        return backend

    @cached_property
    def _adds_space(self) -> bool:
        """Whether a text gets a space before its first word."""
        backend = self._plain_backend
        # "▁a" of both, or "a" of the first and "Ġa" of the second
        bare, spaced = (backend.encode(text, add_special_tokens=False).ids for text in ("a", " a"))
        return bool(bare == spaced)

    def encode_texts(self, texts: Sequence[str]) -> tuple[TokenArray, npt.NDArray[np.int64]]:
        """Tokenize many texts; see :meth:`bertlab.Tokenizer.encode_texts`."""
        if not self._adds_space:
            texts = [f" {text}" if text and not text[0].isspace() else text for text in texts]
        found = self._plain_backend.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [row.ids for row in found]
        flat = np.fromiter((number for row in rows for number in row), self.dtype)
        return flat, np.fromiter(map(len, rows), np.int64, len(rows))

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids and the characters of each; see :meth:`bertlab.Tokenizer`."""
        ids, offsets = super().encode_with_offsets(text)
        return ids, [_trimmed(text, start, end) for start, end in offsets]

    def readable(self, token_id: int) -> str:
        """Return the text of a token, `` in`` of ``Ġin``; the token where it is no text."""
        token = self.token(token_id)
        if self.special_mask[token_id]:
            return token
        if METASPACE in token:
            return token.replace(METASPACE, " ")
        text = self.decode([token_id])
        return token if not text or "\ufffd" in text else text


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a piece of a text without the spaces around it; whole if it is spaces only."""
    piece = text[start:end]
    if piece.isspace() or not piece:
        return start, end
    # " in" at 3 to 6 -> 4 to 6
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
