"""``bertlab embed``: lines of text to features of a fixed encoder (paper sec. 5.3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser

from bertlab import CommandError, check_at_least, nearest
from bertlab.api import DataError
from bertlab.extend import (
    check_model,
    ending_format,
    is_missing,
    parse_arguments,
    say,
)
from bertlab_evaluations.embedding_output import check_output


def main(command: str, argv: list[str]) -> int:
    """Run ``embed``; return the exit code."""
    embed(**vars(parse_arguments(make_parser(command), _with_model(argv))))
    return 0


def _with_model(argv: list[str]) -> list[str]:
    """Return arguments with ``--model`` before a model that stands in front of all.

    ``runs/a text.txt out.npy`` becomes ``--model runs/a text.txt out.npy``.
    """
    if not argv or argv[0].startswith("-"):
        return argv
    if not any(each.partition("=")[0] == "--model" for each in argv):
        return ["--model", *argv]
    if len(argv) > 2 and not any(each.startswith("-") for each in argv[:3]):
        raise CommandError(f"embed: found {argv[0]} and --model, expected one model")
    return argv


def make_parser(command: str) -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.usage = f"bertlab {command} MODEL TEXT OUTPUT [options]"
    parser.add_argument("text", type=str, help="file with one text a line; - is standard input")
    parser.add_argument("output", type=str, help="file to write: .safetensors, or .npy")
    parser.add_function_arguments(embed, skip={"text", "output"})
    return parser


def embed(
    text: str,
    output: str,
    model: str,
    layers: Sequence[int] | None = None,
    combine: Literal["concat", "sum", "mean"] = "concat",
    pool: Literal["none", "cls", "mean"] = "none",
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int = 32,
    max_seq_length: int | None = None,
    truncate: bool = False,
    overwrite: bool = False,
    window_pooling: Literal["mean", "max", "first"] | None = None,
    window_stride: int | None = None,
) -> None:
    """Write features of each line of a text file, in the order of the lines.

    A line without a word is embedded as ``[CLS] [SEP]``, so that line n stays text n; how many
    there were is printed. All ids are held in memory (8 bytes a token), of the vectors one batch.

    Args:
        text: file with one text a line; ``-`` is standard input.
        output: file to write: ``.safetensors``, or ``.npy`` with a vector for each line.
        model: run directory, checkpoint, Hugging Face folder or hub name.
        layers: layers to combine: 0 is the embeddings, -1 the last layer. Not given: the last four,
            the paper's best when concatenated, or all of an encoder with fewer.
        combine: concat, sum or mean of these layers.
        pool: none: a vector for each token; cls: that of [CLS]; mean: the mean over all tokens.
        dtype: precision of the vectors in the file.
        batch_size: texts encoded at a time.
        max_seq_length: longest text in tokens, with [CLS] and [SEP]; the model's maximum if not
            given.
        truncate: cut longer texts at their end and count them; else they are an error.
        overwrite: replace the output file.
        window_pooling: read longer texts in windows of max_seq_length tokens: the mean or max of
            their vectors, or the first.
        window_stride: tokens from the start of a window to the next one's; half a window if not
            given.

    Raises:
        ConfigError: an argument is out of range, or the output is in the way.
        CheckpointError: the model cannot be read.
        DataError: the text cannot be read, is empty, or a line is too long.
    """
    check_model(model)
    check_output(Path(output), text, overwrite, pool)
    if is_missing(text):
        folder = Path(text).parent
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
        hint = nearest(Path(text).name, names)
        raise DataError(f"{text}: cannot be read: No such file or directory{hint}")
    if (form := ending_format(text)) not in (None, "txt"):
        raise DataError(
            f"{text}: is a table ({form}), expected one text a line; write its column of texts to "
            "a .txt file"
        )
    # torch, not for --help
    from bertlab.extend import read_pretrained  # noqa: PLC0415
    from bertlab_evaluations.embedding import (  # noqa: PLC0415
        FeatureChoice,
        Windows,
        check_windows,
    )
    from bertlab_evaluations.embedding_file import (  # noqa: PLC0415
        embed_file,
        load_encoder,
        longest_window,
    )

    check_at_least("--batch_size", batch_size, 1)
    check_windows(window_pooling, window_stride, pool, truncate)
    encoder, tokenizer, source = load_encoder(read_pretrained(model))
    if layers is None:
        layers = range(-min(4, encoder.num_hidden_layers), 0)  # of 12: -4, -3, -2, -1
    limit = longest_window(max_seq_length, encoder)
    windows = window_pooling and Windows(limit, window_pooling, window_stride)
    choice = FeatureChoice(layers, combine, pool, windows or None)
    report = embed_file(
        encoder,
        tokenizer,
        source,
        text,
        Path(output),
        choice,
        dtype,
        batch_size,
        max_seq_length,
        truncate,
    )
    say(f"{output}: {report}")
