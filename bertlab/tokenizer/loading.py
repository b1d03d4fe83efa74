"""Tokenizers from files and checkpoints: a ``tokenizer.json`` tells its own kind."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from bertlab.api.tokenizer import SpecialTokens, Tokenizer
from bertlab.errors import TokenizerError
from bertlab.files import explain_failed_write, new_folder
from bertlab.files.reading import parse_json
from bertlab.tokenizer.files import checked_state, read_files, wordpiece_state
from bertlab.tokenizer.wordpiece import WordPieceTokenizer
from bertlab_modern.subword_files import model_type, special_tokens
from bertlab_modern.subwords import SubwordTokenizer


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a ``vocab.txt`` of WordPiece, a ``tokenizer.json`` of any kind, or a folder with either.

    Nothing in the files is executed or imported; truncation and padding presets are ignored. In a
    folder, ``tokenizer_config.json`` says which special token has which role.

    Raises:
        TokenizerError: a file is missing, damaged, or of a kind that cannot be used.
    """
    files = read_files(Path(path))
    if files.content is None or model_type(files.content, str(files.path)) == "WordPiece":
        return WordPieceTokenizer(wordpiece_state(files), str(files.path))
    return SubwordTokenizer.of_files(files)


def tokenizer_from_json(text: str, source: str) -> Tokenizer:
    """Read what :meth:`Tokenizer.to_json` wrote, for example out of a checkpoint.

    Raises:
        TokenizerError: it is damaged; ``source`` is named.
    """
    try:
        content = parse_json(text)
    except ValueError as error:
        raise TokenizerError(f"{source}: damaged tokenizer: {error}") from None
    match content:
        case {"tokenizer": dict(state), "special_tokens": dict(roles)}:
            return _of_content(state, roles, source)
        case dict():
            return _of_content(content, {}, source)
    raise TokenizerError(f"{source}: damaged tokenizer: expected a JSON object")


def tokenizer_of(backend: Backend, special: SpecialTokens, source: str) -> Tokenizer:
    """Return the tokenizer that a kind has trained.

    Raises:
        TokenizerError: it cannot be used.
    """
    return _of_content(json.loads(backend.to_str()), special.huggingface(), source)


def _of_content(content: dict[str, Any], roles: Mapping[str, str], source: str) -> Tokenizer:
    if model_type(content, source) == "WordPiece":
        return WordPieceTokenizer(checked_state(content, source), source)
    return SubwordTokenizer(content, special_tokens(roles, content, source), source)


def save_new(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the folder of a tokenizer, whole or not at all.

    Raises:
        OutputError: it cannot be written, or holds files.
    """
    failure = f"{folder}: cannot be written"
    with explain_failed_write(failure, "; nothing is left"), new_folder(folder) as partial:
        tokenizer.save(partial)
