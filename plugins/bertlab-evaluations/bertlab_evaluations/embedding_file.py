"""Files of features: a vector for each token or line of a text (paper sec. 5.3)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np
from rich.console import Console
from rich.progress import track

from bertlab import CheckpointError, IntArray, Pretrained, __version__
from bertlab.api import ConfigError, DataError, Encoder, Tokenizer, pack
from bertlab.extend import (
    build_encoder,
    explain_failed_write,
    inference_device,
    input_name,
    known_tokenizer,
    load_matching,
    make_folder,
    read_lines,
    replacing,
)
from bertlab_evaluations.embedding import (
    FeatureChoice,
    batches_by_length,
    features_of,
    text_features,
)
from bertlab_evaluations.embedding_output import NUMPY_SUFFIX

Precision = Literal["float32", "float16"]


@dataclass(frozen=True)
class EmbeddingReport:
    """What :func:`embed_file` wrote; as a text, the lines to print.

    Attributes:
        texts: number of texts.
        tokens: number of tokens, special tokens included.
        shape: of ``embeddings``.
        precision: of ``embeddings``.
        cut: texts that were cut.
        limit: longest sequence in tokens.
        empty: texts without a word.
        in_windows: texts that were read in several windows.
    """

    texts: int
    tokens: int
    shape: tuple[int, int]
    precision: Precision
    cut: int
    limit: int
    empty: int
    in_windows: int = 0

    def __str__(self) -> str:
        lines = [
            f"{self.texts} texts, {self.tokens} tokens, embeddings {self.shape} {self.precision}"
        ]
        if self.cut:
            lines.append(f"note: {self.cut} texts were cut to {self.limit} tokens")
        if self.in_windows:
            lines.append(f"note: {self.in_windows} texts were read in windows of {self.limit}")
        if self.empty:
            lines.append(f"note: {self.empty} lines have no word and became [CLS] [SEP]")
        return "\n".join(lines)


def embed_file(
    encoder: Encoder,
    tokenizer: Tokenizer,
    source: str,
    text: str,
    output: Path,
    choice: FeatureChoice,
    precision: Precision = "float32",
    batch_size: int = 32,
    max_seq_length: int | None = None,
    truncate: bool = False,
) -> EmbeddingReport:
    """Write the features of each line of a text file, in the order of the lines.

    All ids are held in memory (8 bytes a token), of the vectors one batch.

    Args:
        encoder: in evaluation mode.
        tokenizer: of the encoder.
        source: where they come from, for the file's header.
        text: file with one text a line; ``-`` is standard input.
        output: file to write; see :func:`write_embeddings`.
        choice: which features.
        precision: of the vectors in the file.
        batch_size: texts encoded at a time.
        max_seq_length: longest text in tokens, with [CLS] and [SEP]; the encoder's maximum if None.
        truncate: cut longer texts at their end; else they are an error.

    Raises:
        ConfigError: the encoder has no such layer, or ``max_seq_length`` is out of range.
        DataError: the text cannot be read, is empty, or a line is too long.
        OutputError: the file cannot be written.
    """
    device = encoder.token_embedding.weight.device
    limit = longest_window(max_seq_length, encoder)
    bare = tokenizer.build_inputs([])[0]  # [CLS] [SEP]
    features_of(encoder, pack([bare]).to(device), choice)  # refuses wrong layers before reading on
    windows = choice.windows
    reads_on = windows is not None and windows.pooling != "first"
    sequences, cut = _encode_lines(
        text, tokenizer, limit, truncate or windows is not None, reads_on
    )
    tokens = sum(map(len, sequences))
    metadata = {
        "model": source,
        "layers": json.dumps(list(choice.layers)),
        "combine": choice.combine,
        "pool": choice.pool,
        "texts": str(len(sequences)),
        "tokens": str(tokens),
        "truncated": str(0 if reads_on else cut),
        "max_seq_length": str(limit),
        "tokenizer_sha256": tokenizer.fingerprint,
        "bertlab": __version__,
    }
    if windows is not None:
        metadata["window_pooling"] = windows.pooling
        if windows.stride is not None:
            metadata["window_stride"] = str(windows.stride)
    with explain_failed_write(f"output: {output.parent} cannot be made"):
        make_folder(output.parent)
    batches = batches_by_length([len(sequence) for sequence in sequences], batch_size)
    console = Console(stderr=True)
    shown = track(
        batches, "embedding", console=console, transient=True, disable=not console.is_terminal
    )
    with explain_failed_write(f"output: {output} cannot be written"), replacing(output) as file:
        head = None if output.suffix == NUMPY_SUFFIX else metadata
        given = sequences, choice, shown, precision, head, batch_size
        shape = write_embeddings(file, encoder, *given)
    empty = sum(sequence == bare for sequence in sequences)
    counts = (0, limit, empty, cut) if reads_on else (cut, limit, empty)
    return EmbeddingReport(len(sequences), tokens, shape, precision, *counts)


def longest_window(given: int | None, encoder: Encoder) -> int:
    """Return the longest sequence in tokens."""
    longest = encoder.max_position_embeddings
    if given is not None and not 3 <= given <= longest:
        raise ConfigError(
            f"--max_seq_length: found {given}, expected 3 to {longest}, the model's maximum"
        )
    return longest if given is None else given


def _encode_lines(
    text: str, tokenizer: Tokenizer, limit: int, truncate: bool, keeps_all: bool = False
) -> tuple[list[list[int]], int]:
    """Return the ids of each line, special tokens included, and how many lines were too long.

    These are cut, unless ``keeps_all`` of them is read in windows.
    """
    sequences: list[list[int]] = []
    cut = 0
    for number, line in enumerate(read_lines(text), 1):
        ids = tokenizer.encode(line)
        if len(ids) > limit - 2:  # room for [CLS] and [SEP]
            if not truncate:
                raise DataError(
                    f"{input_name(text)}:{number}: {len(ids) + 2} tokens with [CLS] and [SEP], "
                    f"expected at most {limit}; split the text, read such in windows by "
                    "--window_pooling mean, or cut them by --truncate true"
                )
            cut += 1
        sequences.append(tokenizer.build_inputs(ids if keeps_all else ids[: limit - 2])[0])
    if not sequences:
        raise DataError(f"{input_name(text)}: is empty, expected one text a line")
    return sequences, cut


def load_encoder(start: Pretrained) -> tuple[Encoder, Tokenizer, str]:
    """Make the encoder of an earlier model, in evaluation mode, on the GPU if there is one.

    Args:
        start: the model; its tensors are released.

    Returns:
        The encoder, its tokenizer, and where they come from.

    Raises:
        CheckpointError: as :func:`known_tokenizer`.
    """
    tokenizer = known_tokenizer(start)
    encoder = build_encoder(start.encoder_config, start.vocab_size)
    load_matching(encoder, start.encoder_state, start.source, ("pooler.",))
    start.release_weights()
    return encoder.to(inference_device()).eval(), tokenizer, start.source


def write_embeddings(
    file: IO[bytes],
    encoder: Encoder,
    sequences: Sequence[Sequence[int]],
    choice: FeatureChoice,
    batches: Iterable[Sequence[int]],
    precision: Precision,
    metadata: Mapping[str, str] | None,
    batch_size: int,
) -> tuple[int, int]:
    """Embed sequences and write them as safetensors; of vectors, one batch is in memory.

    The file has ``embeddings`` ``(T, D)`` or, pooled, ``(N, D)``; ``offsets`` ``(N + 1,)`` int64:
    the tokens of sequence n are ``[offsets[n], offsets[n + 1])``; ``input_ids`` ``(T,)`` int64.

    Args:
        file: empty, open for writing.
        encoder: in evaluation mode.
        sequences: N lists of ids, special tokens included; at least one.
        choice: which features.
        batches: numbers of the sequences, each once, in any order.
        precision: of ``embeddings``.
        metadata: for the file's header; None: an array of NumPy, ``embeddings`` alone.
        batch_size: windows that are encoded at a time.

    Returns:
        Shape of ``embeddings``.

    Raises:
        ConfigError, CheckpointError: as :func:`embed`; or a value is too large for float16.
    """
    device = encoder.token_embedding.weight.device
    # two tokens, run once for D: concat of 4 layers of 768 has 3072
    width = features_of(encoder, pack([sequences[0][:2]]).to(device), choice)[0].shape[1]
    offsets = np.cumsum([0, *map(len, sequences)], dtype=np.int64)  # lengths [3, 2] -> [0, 3, 5]
    rows = offsets if choice.pool == "none" else np.arange(len(sequences) + 1)
    # safetensors are little-endian on every machine
    dtype = np.dtype(precision).newbyteorder("<")
    shape = int(rows[-1]), width
    if metadata is None:
        form = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, form)
    else:
        file.write(_header(offsets, shape, dtype, metadata))
        file.write(offsets.astype("<i8").tobytes())
        for sequence in sequences:
            file.write(np.asarray(sequence, "<i8").tobytes())
    start = file.tell()
    for batch in batches:
        ids = [sequences[number] for number in batch]
        found = text_features(encoder, ids, choice, batch_size)
        for number, vectors in zip(batch, found, strict=True):
            array = vectors.float().cpu().numpy()
            if np.abs(array).max() > np.finfo(dtype).max:
                raise CheckpointError(
                    f"--model: a value of {np.abs(array).max():g} does not fit into {precision}; "
                    "use --dtype float32"
                )
            # batches come by length, the file is in order; row 5 of width 4 in float32: byte 80
            file.seek(start + int(rows[number]) * width * dtype.itemsize)
            file.write(array.astype(dtype).tobytes())
    return shape


def _header(
    offsets: IntArray,
    shape: tuple[int, int],
    dtype: np.dtype[np.floating],
    metadata: Mapping[str, str],
) -> bytes:
    """Return the start of a safetensors file; the library writes only what is whole in memory."""
    code = f"F{8 * dtype.itemsize}"  # F32, F16
    layout = {  # in the order of the data
        "offsets": ("I64", [len(offsets)], 8 * len(offsets)),
        "input_ids": ("I64", [int(offsets[-1])], 8 * int(offsets[-1])),
        "embeddings": (code, [*shape], shape[0] * shape[1] * dtype.itemsize),
    }
    content: dict[str, object] = {"__metadata__": dict(metadata)}
    place = 0
    for name, (kind, sizes, length) in layout.items():
        content[name] = {"dtype": kind, "shape": sizes, "data_offsets": [place, place + length]}
        place += length
    text = json.dumps(content).encode()
    text += b" " * (-len(text) % 8)  # 13 bytes + 3 spaces: numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text  # the format: length, JSON, tensors
