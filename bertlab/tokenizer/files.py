"""BERT's WordPiece tokenizer (paper sec. 3), and the files of any tokenizer.

They are ``vocab.txt`` and ``tokenizer.json``; nothing in them is executed.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend

from bertlab.api.tokenizer import (
    BoolArray,
    PairLayout,
    SpecialTokens,
    TokenArray,
    Tokenizer,
    TokenizerFiles,
)
from bertlab.errors import TokenizerError, kind_of, nearest
from bertlab.files import (
    check_memory,
    describe_missing,
    make_folder,
    names_in,
    parse_json,
    read_text,
    write_json,
    write_text,
)
from bertlab.plugins.index import installed, load_class, where_to_get
from bertlab.tokenizer.words import WordIds, check_added, check_growth, has_capitals, tokens_beside

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_FORMS = "a vocab.txt, a tokenizer.json or a folder with either"
# tokens and segments that BERT makes of a text A, then of a pair A and B
_TEMPLATE = "[CLS]:0 A:0 [SEP]:0 [CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1"
_BYTES_OF_TOKEN, _BYTES_OF_ADDED = 600, 100  # of memory, of a character of an added one
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_CONFIG_KEYS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
# settings of other rules for words than BERT's, as of Japanese, and what BERT's are called
_BASIC = {
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "do_basic_tokenize": True,
}


def vocabulary_state(
    tokens: Sequence[str],
    lowercase: bool,
    source: str = "vocabulary",
    strip_accents: bool | None = None,
) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json`` for BERT's tokenizer with these tokens."""
    first: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if token in first:
            raise TokenizerError(
                f"{source}: token {token!r} stands in line {first[token] + 1} and again in line "
                f"{number + 1}; each token needs one id"
            )
        first[token] = number
    berts = {"type": "BertNormalizer", "strip_accents": strip_accents, "lowercase": lowercase}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": first}
    state = {"normalizer": berts, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}
    return checked_state(state, source)


def checked_state(state: dict[str, Any], source: str) -> dict[str, Any]:
    """Return what matters of a ``tokenizer.json``; the decoder is BERT's."""
    model = _checked_model(state["model"], source)
    vocabulary: dict[str, int] = model["vocab"]
    added = added_tokens(state.get("added_tokens") or [], vocabulary, SPECIAL_TOKENS, source)
    ids = vocabulary | {token["content"]: token["id"] for token in added}
    # The model itself falls back on [UNK], the others may be added tokens.
    missing = [t for t in SPECIAL_TOKENS if t not in (vocabulary if t == "[UNK]" else ids)]
    if missing:
        raise TokenizerError(
            f"{source}: the vocabulary has no {', '.join(missing)}; BERT needs "
            f"{', '.join(SPECIAL_TOKENS)} (of {len(ids)} tokens, the first are "
            f"{', '.join(map(repr, list(ids)[:5]))})"
        )
    check_ids(ids, source)
    written = json.dumps([state.get("normalizer"), state.get("pre_tokenizer")])
    if re.findall(r'"type": "(\w+)"', written) != ["BertNormalizer", "BertPreTokenizer"]:
        # The backend panics on a damaged one, and it is never BERT's.
        if "Precompiled" in json.dumps(state.get("normalizer")):
            raise TokenizerError(f"{source}: found SentencePiece's normalizer, expected BERT's")
        check_growth(state, source)
    layout = {
        "type": "BertProcessing",
        "sep": ["[SEP]", ids["[SEP]"]],
        "cls": ["[CLS]", ids["[CLS]"]],
    }
    _check_layout(state.get("post_processor"), layout, source)
    known = {token["content"] for token in added}
    added += [special_token(token, ids[token]) for token in SPECIAL_TOKENS if token not in known]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: int(token["id"])),
        "normalizer": _canonical_normalizer(state.get("normalizer")),
        "pre_tokenizer": state.get("pre_tokenizer"),
        "post_processor": layout,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": model,
    }


def _check_layout(found: Any, expected: object, source: str) -> None:  # noqa: ANN401 (JSON)
    """Refuse a post-processor that puts other special tokens or segments around texts than BERT."""
    template = [found.get("single"), found.get("pair")] if isinstance(found, dict) else None
    parts = re.findall(r'"id": "([^"]+)", "type_id": (\d+)', json.dumps(template))
    told = " ".join(f"{name}:{segment}" for name, segment in parts)
    if found not in (None, expected) and told != _TEMPLATE:
        said = f"{source}: post_processor: found {told or str(found):.120}"
        raise TokenizerError(f"{said}, expected none or BERT's: {_TEMPLATE}")


def read_files(path: Path) -> TokenizerFiles:
    """Read a ``vocab.txt``, a ``tokenizer.json`` or a folder with either, such as a run's."""
    path = path.expanduser()
    path = _tokenizer_file(path) if path.is_dir() else path
    beside, added = path.with_name("tokenizer_config.json"), path.with_name("added_tokens.json")
    config = _read_json(beside) if beside.is_file() else {}
    if path.name == "vocab.txt":
        known = set(_read_vocabulary(path)) if config or added.is_file() else set()
        check_added(_read_json(added) if added.is_file() else (), known, added)
        check_added(tokens_beside(config, beside), known, beside)
    return TokenizerFiles(path, _read_json(path) if path.suffix == ".json" else None, config)


def _tokenizer_file(folder: Path) -> Path:
    for name in ("tokenizer.json", "vocab.txt", "tokenizer/tokenizer.json"):
        if (folder / name).is_file():
            return folder / name
    raise TokenizerError(f"{folder}: no tokenizer.json and no vocab.txt here ({names_in(folder)})")


def _read_text(path: Path) -> str:
    try:
        return read_text(path).removeprefix("\ufeff")
    except FileNotFoundError:
        raise TokenizerError(describe_missing(str(path), (), _FORMS)) from None
    except OSError as error:
        told = f"{path}: cannot read the tokenizer: {error.strerror}"
        raise TokenizerError(f"{told}; expected {_FORMS}") from error
    except UnicodeDecodeError as error:
        said = f"{path}: not UTF-8 at byte {error.start} (0x{error.object[error.start]:02x})"
        raise TokenizerError(f"{said}; expected a vocab.txt or a tokenizer.json") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        state = parse_json(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: damaged JSON: {error}") from error
    if not isinstance(state, dict):
        raise TokenizerError(f"{path}: expected a JSON object, found {kind_of(state)}")
    return state


def _read_vocabulary(path: Path) -> list[str]:
    # split(), as splitlines() would break tokens such as U+0085 and U+2028
    text = _read_text(path)
    check_memory(path, "the vocabulary", _BYTES_OF_TOKEN * text.count("\n"))
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise TokenizerError(f"{path}: the vocabulary is empty; expected one token a line")
    return lines


def _checked_model(model: dict[str, Any], source: str) -> dict[str, Any]:
    vocabulary = checked_vocabulary(model, source)
    unknown = model.get("unk_token", "[UNK]")
    if unknown != "[UNK]":
        raise TokenizerError(f"{source}: the unknown token is {unknown!r}, expected '[UNK]'")
    return {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": model.get("continuing_subword_prefix", "##"),
        "max_input_chars_per_word": model.get("max_input_chars_per_word", 100),
        "vocab": dict(sorted(vocabulary.items(), key=lambda item: int(item[1]))),
    }


def checked_vocabulary(model: dict[str, Any], source: str) -> dict[str, int]:
    """Return the ``vocab`` of a model: token to id."""
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise TokenizerError(f"{source}: the vocabulary is empty; expected tokens with their ids")
    # type(): to isinstance(), True is an int
    bad = [token for token, number in vocabulary.items() if type(number) is not int]
    if bad:
        raise TokenizerError(
            f"{source}: token {bad[0]!r} has the id {vocabulary[bad[0]]!r}, expected a whole number"
        )
    return vocabulary


def check_ids(ids: dict[str, int], source: str) -> None:
    """Raise TokenizerError unless the V tokens have the ids 0 to V - 1, each once, and are few."""
    check_memory(source, "the vocabulary", _BYTES_OF_TOKEN * len(ids))
    if sorted(ids.values()) != list(range(len(ids))):
        raise TokenizerError(
            f"{source}: {len(ids)} tokens need the ids 0 to {len(ids) - 1}, each once; found ids "
            f"from {min(ids.values())} to {max(ids.values())}, with gaps or repetitions"
        )


def special_token(content: str, number: int) -> dict[str, Any]:
    """Return the entry of a special token in ``added_tokens``."""
    # the last one wins: all False but special
    return {"id": number, "content": content} | dict.fromkeys(_FLAGS, False) | {"special": True}


def added_tokens(
    added: Any,  # noqa: ANN401 (JSON)
    vocabulary: dict[str, int],
    special: Collection[str],
    source: str,
) -> list[dict[str, Any]]:
    """Return the entries of ``added_tokens`` in canonical form."""
    try:
        tokens = [
            special_token(str(token["content"]), int(token["id"]))
            | {flag: bool(token.get(flag, False)) for flag in _FLAGS}
            for token in added
        ]
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        expected = "a list of objects with id and content"
        raise TokenizerError(f"{source}: added_tokens: expected {expected}") from error
    for token in tokens:
        check_memory(source, "a token of added_tokens", _BYTES_OF_ADDED * len(token["content"]))
        expected = vocabulary.get(token["content"], token["id"])
        if token["id"] != expected:
            raise TokenizerError(
                f"{source}: token {token['content']!r} has the id {token['id']} in added_tokens "
                f"and {expected} in the vocabulary"
            )
        token["special"] = token["special"] or token["content"] in special
    return tokens


def _canonical_normalizer(normalizer: Any) -> Any:  # noqa: ANN401 (JSON)
    if not _is_bert_normalizer(normalizer):
        return normalizer
    lowercase = bool(normalizer.get("lowercase", True))
    strip = normalizer.get("strip_accents")
    return {
        "type": "BertNormalizer",
        "clean_text": bool(normalizer.get("clean_text", True)),
        "handle_chinese_chars": bool(normalizer.get("handle_chinese_chars", True)),
        "strip_accents": lowercase if strip is None else bool(strip),
        "lowercase": lowercase,
    }


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a ``vocab.txt`` of WordPiece, a ``tokenizer.json``, or a folder with either.

    Nothing in the files is executed or imported; truncation and padding presets are ignored. In a
    folder, ``tokenizer_config.json`` says which special token has which role.

    Raises:
        TokenizerError: a file is missing, damaged, or of a kind that cannot be used.
        PluginError: the class that reads this type of model cannot be used.
    """
    return tokenizer_of_files(read_files(Path(path)))


def tokenizer_from_json(text: str, source: str) -> Tokenizer:
    """Read what :meth:`Tokenizer.to_json` wrote, for example out of a checkpoint."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise TokenizerError(f"{source}: damaged tokenizer: {error}") from None
    match content:
        case {"tokenizer": dict(state), "special_tokens": dict(roles)}:
            return tokenizer_of_files(TokenizerFiles(Path(source), state, roles))
        case dict():
            return tokenizer_of_files(TokenizerFiles(Path(source), content, {}))
    raise TokenizerError(f"{source}: damaged tokenizer: expected a JSON object")


def tokenizer_of_files(files: TokenizerFiles) -> Tokenizer:
    """Return the tokenizer of the class that reads this type of model."""
    found = "WordPiece" if files.content is None else _model_type(files.content, str(files.path))
    return load_class("tokenizer_model", found, Tokenizer).from_files(files)


def _model_type(content: Mapping[str, Any], source: str) -> str:
    """Return the type of the model of a ``tokenizer.json``; TokenizerError if nothing reads it."""
    model = content.get("model")
    # Files of tokenizers < 0.9 name no type.
    found = model.get("type", "WordPiece") if isinstance(model, dict) else None
    known = installed("tokenizer_model")
    if not isinstance(found, str) or found not in known:
        name = found if isinstance(found, str) else ""
        get = where_to_get("tokenizer_model", name)
        said = f"{source}: model.type: found {found!r}"
        raise TokenizerError(f"{said}, expected {', '.join(known)}{get or nearest(name, known)}")
    return found


class WordPieceTokenizer(Tokenizer):
    """Splits text into word pieces with the same ids as the original BERT.

    Args:
        state: checked content of a ``tokenizer.json``; use :meth:`from_files` or
            :meth:`from_vocabulary` to get one.
        source: what to name in errors.
    """

    def __init__(self, state: dict[str, Any], source: str = "tokenizer") -> None:
        super().__init__(state, SpecialTokens(), PairLayout(), source)
        # Word by word only where words are known not to influence each other.
        self._by_words = (
            _is_bert_normalizer(state["normalizer"])
            and state["normalizer"]["clean_text"]
            and state["pre_tokenizer"] == {"type": "BertPreTokenizer"}
            and all(token["special"] for token in state["added_tokens"])
        )

    def _word_marks(
        self, state: dict[str, Any], tokens: Sequence[str]
    ) -> tuple[BoolArray, BoolArray | None]:
        return prefixed(tokens, state["model"]["continuing_subword_prefix"]), None

    def _is_uncased(self, state: dict[str, Any]) -> bool:
        return _is_bert_normalizer(state["normalizer"]) and bool(state["normalizer"]["lowercase"])

    def _identity(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    @classmethod
    def from_vocabulary(
        cls, tokens: Sequence[str], lowercase: bool = True, strip_accents: bool | None = None
    ) -> "WordPieceTokenizer":
        """Return BERT's tokenizer for a list of tokens, one of each id.

        ``strip_accents``: whether "café" is read as "cafe"; None, as ``lowercase`` says.
        """
        return cls(vocabulary_state(tokens, lowercase, strip_accents=strip_accents))

    @classmethod
    def from_files(cls, files: TokenizerFiles) -> "WordPieceTokenizer":
        """Return the tokenizer of files that were read.

        If none of them says whether it is lower-cased, a vocabulary with capitals is taken for
        cased.

        Raises:
            TokenizerError: one is damaged, empty, has duplicates or lacks special tokens.
        """
        if files.content is not None:
            state = checked_state(files.content, str(files.path))
        else:
            for key, ours in _BASIC.items():
                if (found := files.config.get(key)) not in (ours, None):
                    place = f"{files.path}: tokenizer_config.json: {key}"
                    raise TokenizerError(f"{place}: found {found!r}, expected BERT's own, {ours!r}")
            tokens = _read_vocabulary(files.path)
            state = vocabulary_state(tokens, not has_capitals(tokens), str(files.path))
        settings = {
            ours: files.set_in_config(theirs)
            for theirs, ours in _CONFIG_KEYS.items()
            if theirs in files.config
        }
        normalizer = state["normalizer"]
        if settings and _is_bert_normalizer(normalizer):
            # The canonical strip_accents was derived from the old lowercase: derive it again.
            derived = normalizer["strip_accents"] == normalizer["lowercase"]
            unset = {"strip_accents": None} if derived else {}
            state["normalizer"] = _canonical_normalizer(normalizer | unset | settings)
        return cls(state, str(files.path))

    def to_json(self) -> str:
        """Return the whole tokenizer in the format of ``tokenizer.json``."""
        return self._json

    @cached_property
    def _plain_backend(self) -> Backend:
        backend = Backend.from_str(self._json)
        backend.encode_special_tokens = True  # [MASK] in a text -> [ mask ]
        return backend

    @cached_property
    def _word_ids(self) -> WordIds:
        return WordIds(self._plain_backend, self.lowercase, self.dtype)

    def encode_texts(self, texts: Sequence[str]) -> tuple[TokenArray, npt.NDArray[np.int64]]:
        """Tokenize many texts; see :meth:`bertlab.Tokenizer.encode_texts`."""
        if self._by_words:
            return self._word_ids.encode(texts)
        rows = [
            row.ids for row in self._plain_backend.encode_batch(texts, add_special_tokens=False)
        ]
        flat = np.fromiter((number for row in rows for number in row), self.dtype)
        return flat, np.fromiter(map(len, rows), np.int64, len(rows))

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
        special = self.special.huggingface()
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": normalizer.get("strip_accents", self.lowercase),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        }
        make_folder(folder)
        write_text(folder / "vocab.txt", "".join(f"{token}\n" for token in self._tokens))
        write_json(folder / "special_tokens_map.json", special)
        write_json(folder / "tokenizer_config.json", config | special)
        write_json(folder / "tokenizer.json", state)


def _is_bert_normalizer(normalizer: Any) -> bool:  # noqa: ANN401 (JSON)
    return isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"


def prefixed(tokens: Sequence[str], prefix: str) -> BoolArray:
    """Return ``(V,)`` bool, True for the V tokens that have a prefix such as ``##``."""
    # "##" alone is a word of two number signs
    return np.array([token.startswith(prefix) and token != prefix for token in tokens], np.bool_)
