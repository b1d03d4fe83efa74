"""Tokenizers from files and checkpoints: the class follows from the model of ``tokenizer.json``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from bertlab.api.tokenizer import SpecialTokens, Tokenizer, TokenizerFiles
from bertlab.errors import TokenizerError, nearest
from bertlab.files import explain_failed_write, new_folder
from bertlab.files.reading import parse_json
from bertlab.plugins.index import installed, load_class, where_to_get
from bertlab.tokenizer.files import read_files


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a ``vocab.txt`` of WordPiece, a ``tokenizer.json``, or a folder with either.

    Nothing in the files is executed or imported; truncation and padding presets are ignored. In a
    folder, ``tokenizer_config.json`` says which special token has which role.

    Raises:
        TokenizerError: a file is missing, damaged, or of a kind that cannot be used.
        PluginError: the class that reads this type of model cannot be used.
    """
    return _of_files(read_files(Path(path)))


def tokenizer_from_json(text: str, source: str) -> Tokenizer:
    """Read what :meth:`Tokenizer.to_json` wrote, for example out of a checkpoint."""
    try:
        content = parse_json(text)
    except ValueError as error:
        raise TokenizerError(f"{source}: damaged tokenizer: {error}") from None
    match content:
        case {"tokenizer": dict(state), "special_tokens": dict(roles)}:
            return _of_files(TokenizerFiles(Path(source), state, roles))
        case dict():
            return _of_files(TokenizerFiles(Path(source), content, {}))
    raise TokenizerError(f"{source}: damaged tokenizer: expected a JSON object")


def tokenizer_of(backend: Backend, special: SpecialTokens, source: str) -> Tokenizer:
    """Return the tokenizer that a kind has trained."""
    content = json.loads(backend.to_str())
    return _of_files(TokenizerFiles(Path(source), content, special.huggingface()))


def _of_files(files: TokenizerFiles) -> Tokenizer:
    found = "WordPiece" if files.content is None else _model_type(files.content, str(files.path))
    made = load_class("tokenizer_model", found, Tokenizer)
    return made.from_files(files)  # type: ignore[attr-defined, no-any-return]


def _model_type(content: Mapping[str, Any], source: str) -> str:
    """Return the type of the model of a ``tokenizer.json``; TokenizerError if nothing reads it."""
    model = content.get("model")
    # Files of tokenizers < 0.9 name no type.
    found = model.get("type", "WordPiece") if isinstance(model, dict) else None
    known = installed("tokenizer_model")
    if not isinstance(found, str) or found not in known:
        name = found if isinstance(found, str) else ""
        get = where_to_get("tokenizer_model", name)
        raise TokenizerError(
            f"{source}: model.type: found {found!r}, expected {', '.join(known)}"
            f"{get or nearest(name, known)}"
        )
    return found


def save_new(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the folder of a tokenizer, whole or not at all."""
    failure = f"{folder}: cannot be written"
    with explain_failed_write(failure, "; nothing is left"), new_folder(folder) as partial:
        tokenizer.save(partial)
