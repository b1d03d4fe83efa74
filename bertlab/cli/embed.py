"""``bertlab embed``: lines of text to features of a fixed encoder (paper sec. 5.3)."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from jsonargparse import ArgumentParser
from rich.console import Console
from rich.progress import track

from bertlab import __version__
from bertlab.api.batch import pack
from bertlab.api.encoder import Encoder
from bertlab.checkpoints.loading import load_matching
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import read_pretrained
from bertlab.config.parse import parse_arguments
from bertlab.data.reading.lines import STANDARD_INPUT, name_of, read_lines
from bertlab.errors import CheckpointError, ConfigError, DataError, OutputError, check_at_least
from bertlab.files import explain_failed_write, replacing
from bertlab.heads.feature_tagging import Combination
from bertlab.model.build import build_encoder
from bertlab.model.embedding import (
    FeatureChoice,
    Pool,
    Precision,
    batches_by_length,
    embed,
    write_embeddings,
)
from bertlab.tokenizer.wordpiece import WordPieceTokenizer

SUFFIX = ".safetensors"


def main(command: str, argv: list[str]) -> int:
    """Run ``embed``; return the exit code."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.add_argument("text", type=str, help="file with one text a line; - is standard input")
    parser.add_argument("output", type=str, help=f"file to write, its name ends in {SUFFIX}")
    parser.add_function_arguments(embed_file, skip={"text", "output"})
    embed_file(**vars(parse_arguments(parser, argv)))
    return 0


def embed_file(
    text: str,
    output: str,
    model: str,
    layers: Sequence[int] = (-4, -3, -2, -1),
    combine: Combination = "concat",
    pool: Pool = "none",
    dtype: Precision = "float32",
    batch_size: int = 32,
    max_seq_length: int | None = None,
    truncate: bool = False,
    overwrite: bool = False,
) -> None:
    """Write features of each line of a text file, in the order of the lines.

    A line without a word is embedded as ``[CLS] [SEP]``, so that line n stays text n; how many
    there were is printed. All ids are held in memory (8 bytes a token), of the vectors one batch.

    Args:
        text: file with one text a line; ``-`` is standard input.
        output: file to write.
        model: run directory, checkpoint, Hugging Face folder or hub name.
        layers: layers to combine: 0 is the embeddings, -1 the last layer; the paper's best are the
            last four, concatenated.
        combine: concat, sum or mean of these layers.
        pool: none: a vector for each token; cls: that of [CLS]; mean: the mean over all tokens.
        dtype: precision of the vectors in the file.
        batch_size: texts encoded at a time.
        max_seq_length: longest text in tokens, with [CLS] and [SEP]; the model's maximum if not
            given.
        truncate: cut longer texts at their end and count them; else they are an error.
        overwrite: replace the output file.

    Raises:
        ConfigError: an argument is out of range, or the output is in the way.
        CheckpointError: the model cannot be read.
        DataError: the text cannot be read, is empty, or a line is too long.
    """
    target = Path(output)
    _check_output(target, text, overwrite)
    check_at_least("--batch_size", batch_size, 1)
    start = read_pretrained(model)
    if start.tokenizer is None:
        raise CheckpointError(f"{model}: has no tokenizer (vocab.txt or tokenizer.json)")
    encoder = _fixed_encoder(start, start.tokenizer)
    start.release_weights()
    limit = _limit(max_seq_length, encoder)
    choice = FeatureChoice(layers, combine, pool)
    bare = start.tokenizer.build_inputs([])[0]
    embed(encoder, pack([bare]).to(_device()), choice)  # refuses wrong layers before reading on
    sequences, cut = _encode_lines(text, start.tokenizer, limit, truncate)
    metadata = {
        "model": start.source,
        "layers": json.dumps(list(layers)),
        "combine": combine,
        "pool": pool,
        "texts": str(len(sequences)),
        "tokens": str(sum(map(len, sequences))),
        "truncated": str(cut),
        "max_seq_length": str(limit),
        "tokenizer_sha256": start.tokenizer.fingerprint,
        "bertlab": __version__,
    }
    with explain_failed_write(f"output: {target.parent} cannot be made"):
        target.parent.mkdir(parents=True, exist_ok=True)
    batches = batches_by_length([len(sequence) for sequence in sequences], batch_size)
    shown = _with_progress(batches)
    with explain_failed_write(f"output: {output} cannot be written"), replacing(target) as file:
        shape = write_embeddings(file, encoder, sequences, choice, shown, dtype, metadata)
    empty = sum(sequence == bare for sequence in sequences)
    _report(output, metadata, shape, dtype, cut, empty)


def _check_output(target: Path, text: str, overwrite: bool) -> None:
    if target.suffix != SUFFIX:
        raise OutputError(f"output: found {str(target)!r}, expected a name that ends in {SUFFIX}")
    if target.is_dir():
        raise OutputError(f"output: {target} is a folder, expected a file to write")
    if target.exists() and text != STANDARD_INPUT and target.resolve() == Path(text).resolve():
        raise OutputError(f"output: {target} is the text file itself")
    if target.exists() and not overwrite:
        raise OutputError(
            f"output: {target} exists; choose another name, or replace it by --overwrite true"
        )


def _fixed_encoder(start: Pretrained, tokenizer: WordPieceTokenizer) -> Encoder:
    """Return the encoder in evaluation mode, on the GPU if there is one."""
    if tokenizer.vocab_size > start.vocab_size:
        raise CheckpointError(
            f"{start.source}: its tokenizer has {tokenizer.vocab_size} ids, but its token "
            f"embedding only {start.vocab_size} rows"
        )
    encoder = build_encoder(start.encoder_config, start.vocab_size)
    load_matching(encoder, start.encoder_state, start.source, ("pooler.",))
    return encoder.to(_device()).eval()


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _limit(given: int | None, encoder: Encoder) -> int:
    """Return the longest sequence in tokens."""
    longest = encoder.max_position_embeddings
    if given is not None and not 3 <= given <= longest:
        raise ConfigError(
            f"--max_seq_length: found {given}, expected 3 to {longest}, the model's maximum"
        )
    return longest if given is None else given


def _encode_lines(
    text: str, tokenizer: WordPieceTokenizer, limit: int, truncate: bool
) -> tuple[list[list[int]], int]:
    """Return the ids of each line, special tokens included, and how many lines were cut."""
    sequences: list[list[int]] = []
    cut = 0
    for number, line in enumerate(read_lines(text), 1):
        ids = tokenizer.encode(line)
        if len(ids) > limit - 2:
            if not truncate:
                raise DataError(
                    f"{name_of(text)}:{number}: {len(ids) + 2} tokens with [CLS] and [SEP], "
                    f"expected at most {limit}; split the text, or cut all such by --truncate true"
                )
            cut += 1
        sequences.append(tokenizer.build_inputs(ids[: limit - 2])[0])
    if not sequences:
        raise DataError(f"{name_of(text)}: is empty, expected one text a line")
    return sequences, cut


def _with_progress(batches: list[list[int]]) -> Iterable[list[int]]:
    """Show a bar where somebody looks at it."""
    console = Console(stderr=True)
    return track(
        batches, "embedding", console=console, transient=True, disable=not console.is_terminal
    )


def _report(
    output: str,
    metadata: dict[str, str],
    shape: tuple[int, int],
    dtype: Precision,
    cut: int,
    empty: int,
) -> None:
    """Print what was written."""
    sys.stdout.write(
        f"{output}: {metadata['texts']} texts, {metadata['tokens']} tokens, embeddings {shape} "
        f"{dtype}\n"
    )
    if cut:
        sys.stdout.write(f"note: {cut} texts were cut to {metadata['max_seq_length']} tokens\n")
    if empty:
        sys.stdout.write(f"note: {empty} lines have no word and became [CLS] [SEP]\n")
