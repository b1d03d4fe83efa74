"""The file that ``bertlab embed`` writes, as far as it can be refused before torch is imported."""

from pathlib import Path

from bertlab.extend import STANDARD_INPUT, OutputError

SUFFIX, NUMPY_SUFFIX = ".safetensors", ".npy"


def check_output(target: Path, text: str, overwrite: bool, pool: str = "none") -> None:
    """Refuse a file that cannot be written or would be lost.

    Args:
        target: file to write.
        text: file that is embedded.
        overwrite: ``target`` may be there.
        pool: ``none``: vectors of tokens, for which ``.npy`` has no place to say whose they are.

    Raises:
        OutputError: says what is in the way.
    """
    if target.suffix not in (SUFFIX, NUMPY_SUFFIX):
        raise OutputError(
            f"output: found {str(target)!r}, expected a name that ends in {SUFFIX} or "
            f"{NUMPY_SUFFIX}"
        )
    if target.suffix == NUMPY_SUFFIX and pool == "none":
        raise OutputError(
            f"output: {target}: an array of all tokens does not say where a text begins; expected "
            f"--pool mean or cls, or a name that ends in {SUFFIX}"
        )
    if target.is_dir():
        raise OutputError(f"output: {target} is a folder, expected a file to write")
    if target.exists() and text != STANDARD_INPUT and target.resolve() == Path(text).resolve():
        raise OutputError(f"output: {target} is the text file itself")
    if target.exists() and not overwrite:
        raise OutputError(
            f"output: {target} exists; choose another name, or replace it by --overwrite true"
        )
