"""``bertlab tokenizer --extend``: a model's vocabulary with further pieces, its weights kept."""

from collections.abc import Sequence

from jsonargparse import ArgumentParser

from bertlab.extend import (
    add_corpus,
    add_to_json,
    check_model,
    name_corpus,
    parse_arguments,
    say,
    working,
)


def main(argv: list[str]) -> int:
    """Run the command; return the exit code."""
    given = parse_arguments(make_parser(argv), argv).as_dict()
    check_model(given["model"])
    from bertlab_interop.extend_vocabulary import extend_vocabulary  # noqa: PLC0415  torch

    named = ("corpus_format", "text_column", "errors", "language")
    reading = {name: given.pop(name) for name in named}
    given["special_tokens"] = given["special_tokens"].split()
    if (corpus := given.pop("corpus")) is not None:
        corpus = name_corpus(corpus, **reading)
    with working(f"extending {given['model']}"):
        report = extend_vocabulary(corpus=corpus, **given)
    add_to_json(extended=report)
    count = len(report.pieces)
    line = f"{report.output}: {count:,} new pieces, {report.before + count:,} tokens"
    if report.pieces_a_word is not None:
        before, after = report.pieces_a_word
        line += f"; {before:.3f} pieces a word of the corpus before, {after:.3f} after"
    say("\n".join([line, *(f"note: {each}" for each in report.notes)]))
    return 0


def make_parser(argv: Sequence[str] = ()) -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(prog="bertlab tokenizer --extend", exit_on_error=False)
    parser.add_argument(
        "--model",
        "--extend",
        type=str,
        required=True,
        help="run directory, checkpoint, Hugging Face folder or hub name",
    )
    parser.add_argument("--output", type=str, required=True, help="folder to write")
    parser.add_argument("--add", type=int | None, help="number of pieces to find in the corpus")
    parser.add_argument("--words", type=str | None, help="file of words in its place, one a line")
    parser.add_argument(
        "--special_tokens",
        type=str,
        default="",
        help="that heads ask for, spaces between: '[E1] [E2]'",
    )
    parser.add_argument(
        "--min_frequency", type=int, default=2, help="rarer neighbours are not joined"
    )
    parser.add_argument("--overwrite", type=bool, default=False, help="replace an older export")
    parser.add_argument("--head", type=str | None, help="the one of several heads to write")
    add_corpus(parser, argv, required=False)  # to find pieces in, or to measure on
    return parser
