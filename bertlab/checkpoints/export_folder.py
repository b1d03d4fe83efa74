"""The folder of an export: how it appears whole, and what it has beside config and weights."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from bertlab.api.encoder import Encoder
from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import CheckpointError, OutputError
from bertlab.files import new_folder, write_json
from bertlab.files.reading import read_object


@contextlib.contextmanager
def export_folder(output: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder to fill, which becomes ``output`` at the end of the block."""
    _check_output(output, overwrite)
    try:
        with new_folder(output, overwrite=True) as folder:
            yield folder
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"{output}: cannot be written ({reason}); nothing was changed there"
        ) from None


def _check_output(output: Path, overwrite: bool) -> None:
    if output.exists() and not output.is_dir():
        raise CheckpointError(f"{output}: is a file, expected a folder to make")
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not overwrite:
        raise CheckpointError(
            f"{output}: the folder is not empty; choose another, or replace an older export by "
            "--overwrite true"
        )
    if not (output / "config.json").is_file():
        raise CheckpointError(
            f"{output}: holds files but no config.json, so it is no export and is not overwritten"
        )


def make_readable(path: Path) -> None:
    """Give a file the rights that umask leaves to one made plainly; config.json beside it is one.

    ``safetensors`` and others let the owner alone read what they write.
    """
    path.chmod((path.parent / "config.json").stat().st_mode & 0o777)


def save_tokenizer(
    tokenizer: Tokenizer, folder: Path, encoder: Encoder, longest: int | None, has_segments: bool
) -> None:
    """Write the tokenizer as ``transformers`` loads it, with what the model adds to it."""
    tokenizer.save(folder)
    path = folder / "tokenizer_config.json"
    most = encoder.max_position_embeddings
    more: dict[str, object] = {"model_max_length": min(longest or most, most)}
    if not has_segments:
        more["model_input_names"] = ["input_ids", "attention_mask"]
    write_json(path, read_object(path) | more)
