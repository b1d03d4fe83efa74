"""``bertlab tokenizer`` and ``bertlab prepare``: text to vocabulary, text to token store."""

import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jsonargparse import ArgumentParser

from bertlab.config.parse import parse_arguments
from bertlab.errors import OutputError
from bertlab.training.console import print_table

if TYPE_CHECKING:
    from bertlab.data.corpus.corpus import Corpus

Format = Literal["auto", "sentences", "document", "wikiextractor"]
Errors = Literal["strict", "replace"]


def main(command: str, argv: list[str]) -> int:
    """Run ``tokenizer`` or ``prepare``; return the exit code."""
    functions: dict[str, Callable[..., None]] = {
        "tokenizer": make_tokenizer,
        "prepare": make_store,
    }
    function = functions[command]
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    # the corpus's options stand beside the command's own, and become its argument `source`
    parser.add_function_arguments(name_corpus)
    parser.add_function_arguments(function, skip={"source"})
    options = vars(parse_arguments(parser, argv))
    source = name_corpus(**{name: options.pop(name) for name in signature(name_corpus).parameters})
    function(source, **options)
    return 0


def name_corpus(
    corpus: str | list[str],
    corpus_format: Format = "auto",
    text_column: str = "text",
    errors: Errors = "strict",
    language: str = "en",
) -> "Corpus":
    """The corpus, and how to read it.

    Args:
        corpus: files, folders, ``hf:NAME`` of ``datasets``, or ``python-english``.
        corpus_format: how files are laid out; ``auto`` looks at each.
        text_column: column that holds the text, for tabular sources.
        errors: what to do about bytes that are not UTF-8.
        language: for sentence splitting.
    """
    from bertlab.data.corpus.corpus import Corpus  # noqa: PLC0415  torch, not for --help

    sources = [corpus] if isinstance(corpus, str) else corpus
    return Corpus(sources, corpus_format, text_column, errors, language)


def make_tokenizer(
    source: "Corpus",
    output: str,
    vocab_size: int = 30_000,
    lowercase: bool = True,
    min_frequency: int = 2,
) -> None:
    """Train a WordPiece vocabulary and write it as a folder that transformers also loads.

    Args:
        source: text to train on.
        output: folder to write; must not exist or be empty.
        vocab_size: number of word pieces, special tokens included (BERT: 30,000).
        lowercase: uncased: lower-case the text and strip its accents.
        min_frequency: pieces must be seen so often to be merged.
    """
    from bertlab.data.corpus.corpus import read_documents  # noqa: PLC0415  torch, not for --help
    from bertlab.tokenizer.training import save_new, train_wordpiece  # noqa: PLC0415

    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"--output: {folder} exists and is not an empty folder")
    texts = (sentence for document in read_documents(source) for sentence in document.sentences)
    tokenizer = train_wordpiece(
        texts, vocab_size, lowercase, min_frequency, show_progress=sys.stderr.isatty()
    )
    save_new(tokenizer, folder)
    sys.stdout.write(f"{folder}: {tokenizer.vocab_size} word pieces\n")


def make_store(
    source: "Corpus", tokenizer: str, output: str, workers: int = 1, max_seq_length: int = 128
) -> None:
    """Tokenise a corpus into a token store and print the data report.

    Args:
        source: text to tokenise.
        tokenizer: ``vocab.txt``, ``tokenizer.json`` or a folder with one.
        output: folder to write, which ``data.corpus`` of a config may name. It must not exist; the
            store of the same text and tokenizer stays, and is reported on again.
        workers: processes that split sentences and tokenise.
        max_seq_length: for the report only: how BERT's sampling and masking would come out.
    """
    from bertlab.data.corpus.prepare import open_prepared_before, prepare  # noqa: PLC0415  torch
    from bertlab.data.sampling.report import report_store  # noqa: PLC0415
    from bertlab.data.sampling.sampler import check_max_seq_length  # noqa: PLC0415
    from bertlab.tokenizer.wordpiece import WordPieceTokenizer  # noqa: PLC0415

    check_max_seq_length(max_seq_length)
    loaded, folder = WordPieceTokenizer.load(Path(tokenizer)), Path(output)
    store = open_prepared_before(source, loaded, folder)
    if store is None:
        store = prepare(source, loaded, folder, workers)
    else:
        sys.stdout.write(f"{folder}: holds this text already\n")
    print_table(output, report_store(store, max_seq_length))
