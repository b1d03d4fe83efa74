"""``bertlab tokenizer`` and ``bertlab prepare``: text to vocabulary, text to token store."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser
from rich.console import Console

from bertlab.arguments import parse_arguments
from bertlab.data.corpus import Corpus, read_documents
from bertlab.data.data_report import StoreReport, render
from bertlab.data.prepare import prepare
from bertlab.data.sampling_report import report_pretraining
from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.data.wordpiece_training import train_wordpiece
from bertlab.errors import TokenizerError
from bertlab.run_directory import write_json

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
    parser.add_function_arguments(function)
    function(**parse_arguments(parser, argv))
    return 0


def make_tokenizer(
    corpus: str | list[str],
    output: str,
    vocab_size: int = 30_000,
    lowercase: bool = True,
    min_frequency: int = 2,
    corpus_format: Format = "auto",
    text_column: str = "text",
    errors: Errors = "strict",
    language: str = "en",
) -> None:
    """Train a WordPiece vocabulary and write it as a folder that transformers also loads.

    Args:
        corpus: files, folders, ``hf:NAME`` of ``datasets``, or ``python-english``.
        output: folder to write; must not exist or be empty.
        vocab_size: number of word pieces, special tokens included (BERT: 30,000).
        lowercase: uncased: lower-case the text and strip its accents.
        min_frequency: pieces must be seen so often to be merged.
        corpus_format: how files are laid out; ``auto`` looks at each.
        text_column: column that holds the text, for tabular sources.
        errors: what to do about bytes that are not UTF-8.
        language: for sentence splitting.
    """
    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise TokenizerError(f"--output: {folder} exists and is not an empty folder")
    source = _corpus(corpus, corpus_format, text_column, errors, language)
    texts = (sentence for document in read_documents(source) for sentence in document.sentences)
    tokenizer = train_wordpiece(
        texts, vocab_size, lowercase, min_frequency, show_progress=sys.stderr.isatty()
    )
    tokenizer.save(folder)
    sys.stdout.write(f"{folder}: {tokenizer.vocab_size} word pieces\n")


def make_store(
    corpus: str | list[str],
    tokenizer: str,
    output: str,
    workers: int = 1,
    max_seq_length: int = 128,
    corpus_format: Format = "auto",
    text_column: str = "text",
    errors: Errors = "strict",
    language: str = "en",
) -> None:
    """Tokenise a corpus into a token store and print the data report.

    Args:
        corpus: files, folders, ``hf:NAME`` of ``datasets``, or ``python-english``.
        tokenizer: ``vocab.txt``, ``tokenizer.json`` or a folder with one.
        output: folder to write; must not exist. ``data.corpus`` of a config may name it.
        workers: processes that split sentences and tokenise.
        max_seq_length: for the report only: how BERT's sampling and masking would come out.
        corpus_format: how files are laid out; ``auto`` looks at each.
        text_column: column that holds the text, for tabular sources.
        errors: what to do about bytes that are not UTF-8.
        language: for sentence splitting.
    """
    source = _corpus(corpus, corpus_format, text_column, errors, language)
    store = prepare(source, WordPieceTokenizer.load(Path(tokenizer)), Path(output), workers)
    report = StoreReport.from_json((store.path / "report.json").read_text("utf-8"))
    sampling = report_pretraining(store, max_seq_length)
    write_json(store.path / "sampling.json", asdict(sampling))
    Console().print(render(output, [*report.rows(), *sampling.rows()]))


def _corpus(
    corpus: str | list[str],
    corpus_format: Format,
    text_column: str,
    errors: Errors,
    language: str,
) -> Corpus:
    sources = [corpus] if isinstance(corpus, str) else corpus
    return Corpus(sources, corpus_format, text_column, errors, language)
