"""``bertlab tokenizer`` and ``bertlab prepare``: text to vocabulary, text to token store."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser

from bertlab.config.parse import parse_arguments
from bertlab.console import print_table
from bertlab.data.corpus.corpus import Corpus, read_documents
from bertlab.data.corpus.prepare import prepare
from bertlab.data.corpus.report import StoreReport
from bertlab.data.corpus.store import TokenStore
from bertlab.data.sampling.report import report_pretraining
from bertlab.data.sampling.sampler import check_max_seq_length
from bertlab.errors import CorpusError, OutputError
from bertlab.files import (
    explain_failed_write,
    explain_vanished_folder,
    new_folder,
    write_json,
)
from bertlab.tokenizer.training import train_wordpiece
from bertlab.tokenizer.wordpiece import WordPieceTokenizer

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
) -> Corpus:
    """The corpus, and how to read it.

    Args:
        corpus: files, folders, ``hf:NAME`` of ``datasets``, or ``python-english``.
        corpus_format: how files are laid out; ``auto`` looks at each.
        text_column: column that holds the text, for tabular sources.
        errors: what to do about bytes that are not UTF-8.
        language: for sentence splitting.
    """
    sources = [corpus] if isinstance(corpus, str) else corpus
    return Corpus(sources, corpus_format, text_column, errors, language)


def make_tokenizer(
    source: Corpus,
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
    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"--output: {folder} exists and is not an empty folder")
    texts = (sentence for document in read_documents(source) for sentence in document.sentences)
    tokenizer = train_wordpiece(
        texts, vocab_size, lowercase, min_frequency, show_progress=sys.stderr.isatty()
    )
    failure = f"{folder}: cannot be written"
    with explain_failed_write(failure, "; nothing is left"), new_folder(folder) as partial:
        tokenizer.save(partial)
    sys.stdout.write(f"{folder}: {tokenizer.vocab_size} word pieces\n")


def make_store(
    source: Corpus, tokenizer: str, output: str, workers: int = 1, max_seq_length: int = 128
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
    check_max_seq_length(max_seq_length)
    loaded, folder = WordPieceTokenizer.load(Path(tokenizer)), Path(output)
    store = _made_before(folder, source, loaded) or prepare(source, loaded, folder, workers)
    with explain_vanished_folder(folder):
        rows = _report(store, max_seq_length)
    print_table(output, rows)


def _report(store: TokenStore, max_seq_length: int) -> list[tuple[str, str]]:
    """Return the data report; write what BERT's sampling makes of the store beside it."""
    report = StoreReport.from_json((store.path / "report.json").read_text("utf-8"))
    rows = report.rows()
    try:
        sampling = report_pretraining(store, max_seq_length)
    except CorpusError as error:  # the store is good for other input formats
        return [*rows, ("BERT's sampling", f"not possible: {error}")]
    write_json(store.path / "sampling.json", asdict(sampling))
    return [*rows, *sampling.rows()]


def _made_before(folder: Path, source: Corpus, tokenizer: WordPieceTokenizer) -> TokenStore | None:
    """Return the store that is there, if it is of this text and tokenizer."""
    if not (folder / "store.json").is_file():
        return None
    store = TokenStore.open(folder)
    there = store.metadata.corpus_fingerprint, store.metadata.tokenizer_fingerprint
    if there != (source.fingerprint, tokenizer.fingerprint):
        return None
    sys.stdout.write(f"{folder}: holds this text already\n")
    return store
