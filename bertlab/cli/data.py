"""``bertlab tokenizer`` and ``prepare``: text to vocabulary, or to a store.

``--executor NAME`` says where text is tokenised; an executor adds options of its own.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser

from bertlab.api.executor import Executor
from bertlab.config.parse import parse_arguments
from bertlab.config.yaml_files import split_arguments
from bertlab.errors import (
    CommandError,
    CorpusError,
    OutputError,
    PluginError,
    check_at_least,
    print_table,
    say,
    warn,
    working,
)
from bertlab.plugins.index import installed, load_class

if TYPE_CHECKING:
    from bertlab.data.corpus.corpus import Corpus

Format = Literal["auto", "sentences", "document", "wikiextractor"]
Errors = Literal["strict", "replace"]


def main(command: str, argv: list[str]) -> int:
    """Run ``tokenizer`` or ``prepare``; return the exit code."""
    function, parser = _functions()[command], make_parser(command)
    settings: tuple[str, ...] = ()
    if function is make_tokenizer:
        settings = _add_settings(parser, argv)
    if function is make_store:
        settings = add_executor_options(parser, argv, Executor)
    options = vars(parse_arguments(parser, argv))
    source = name_corpus(**{name: options.pop(name) for name in signature(name_corpus).parameters})
    options["settings"] = {name: options.pop(name) for name in settings}
    function(source, **options)
    return 0


def _functions() -> dict[str, Callable[..., None]]:
    return {"tokenizer": make_tokenizer, "prepare": make_store}


def make_parser(command: str) -> ArgumentParser:
    """Return the parser of the options, without those of a kind of tokenizer or an executor."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    # the corpus's options stand beside the command's own, and become its argument `source`
    parser.add_function_arguments(name_corpus)
    parser.add_function_arguments(_functions()[command], skip={"source", "settings"})
    return parser


def _add_settings(parser: ArgumentParser, argv: Sequence[str]) -> tuple[str, ...]:
    """Add the settings of the kind of tokenizer that ``--kind`` names; return their names."""
    from bertlab.api.tokenizer import TokenizerKind  # noqa: PLC0415  NumPy, not for --help
    from bertlab.plugins.index import load_class  # noqa: PLC0415

    named = [value for key, value, _ in split_arguments(argv) if key == "--kind" and value]
    chosen = load_class("tokenizer", named[-1] if named else "wordpiece", TokenizerKind)
    parser.add_class_arguments(chosen, None)
    return tuple(signature(chosen).parameters)


def name_corpus(
    corpus: str | list[str],
    corpus_format: Format = "auto",
    text_column: str = "text",
    errors: Errors = "strict",
    language: str = "en",
) -> "Corpus":
    """The corpus, and how to read it."""
    from bertlab.data.corpus.corpus import Corpus  # noqa: PLC0415  torch, not for --help

    sources = [corpus] if isinstance(corpus, str) else corpus
    return Corpus(sources, corpus_format, text_column, errors, language)


def make_tokenizer(
    source: "Corpus",
    output: str,
    kind: str = "wordpiece",
    vocab_size: int = 30_000,
    lowercase: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Train a tokenizer and write it as a folder that transformers also loads."""
    from bertlab.data.corpus.corpus import read_documents  # noqa: PLC0415  torch, not for --help
    from bertlab.tokenizer.files import save_new  # noqa: PLC0415
    from bertlab.tokenizer.kinds import build_kind, train_tokenizer  # noqa: PLC0415

    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"--output: {folder} exists and is not an empty folder")
    texts = (sentence for document in read_documents(source) for sentence in document.sentences)
    chosen = build_kind({"name": kind, **(settings or {})})
    with working(f"training {folder.name}"):
        tokenizer = train_tokenizer(chosen, texts, vocab_size, lowercase)
    save_new(tokenizer, folder)
    pieces = "word pieces" if kind == "wordpiece" else f"tokens of {kind}"
    say(f"{folder}: {tokenizer.vocab_size} {pieces}")


def make_store(
    source: "Corpus",
    tokenizer: str,
    output: str,
    workers: int | None = None,
    max_seq_length: int = 128,
    shard_tokens: int | None = None,
    executor: str = "local",
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Tokenise a corpus into a token store and print the data report."""
    from bertlab.data.corpus.prepare import open_prepared_before, prepare  # noqa: PLC0415  torch
    from bertlab.data.corpus.store import StoreReport, check_pairs  # noqa: PLC0415
    from bertlab.data.loader import report_store  # noqa: PLC0415
    from bertlab.data.sampler import check_max_seq_length  # noqa: PLC0415
    from bertlab.tokenizer.files import load_tokenizer  # noqa: PLC0415

    check_max_seq_length(max_seq_length)
    check_at_least("workers", workers, 1)
    loaded, folder = load_tokenizer(Path(tokenizer)), Path(output)
    store = open_prepared_before(source, loaded, folder)
    if store is None:
        made = load_executor(executor, Executor)(**settings or {})
        with made.mapping(workers) if executor != LOCAL_EXECUTOR else nullcontext() as away:
            here = workers or 1 if away is None else 1
            store = prepare(source, loaded, folder, here, shard_tokens=shard_tokens, away=away)
    else:
        say(f"{folder}: holds this text already")
    try:
        check_pairs(StoreReport.read(folder))
    except CorpusError as error:  # what is trained on it may make no pairs
        warn(f"{folder}: {error}")
    print_table(output, report_store(store, max_seq_length))


LOCAL_EXECUTOR = "local"


def load_executor(name: str, base: type[Executor]) -> type[Executor]:
    """Return the class of an executor.

    Args:
        name: as ``--executor`` gives it.
        base: what the command needs: :class:`Executor` to tokenise, where ``local`` is this class
            itself, as it needs none; or a subclass of it.

    Raises:
        PluginError: there is none of that name, or it cannot be used.
        CommandError: it does other things.
    """
    if name == LOCAL_EXECUTOR and base is Executor:
        return Executor
    chosen: type[Executor] = load_class("executor", name, Executor)
    if not issubclass(chosen, base):
        raise CommandError(f"--executor: {name} does not execute the runs of studies")
    if base is Executor and chosen.mapping is Executor.mapping:
        raise CommandError(f"--executor: {name} executes the runs of studies, and does not prepare")
    return chosen


def option_names(name: str, base: type[Executor]) -> tuple[str, ...]:
    """Return the options of an executor that a command offers."""
    chosen = load_executor(name, base)
    skipped = chosen.only_for_studies if base is Executor else ()
    return tuple(each for each in signature(chosen).parameters if each not in skipped)


def add_executor_options(
    parser: ArgumentParser, argv: Sequence[str], base: type[Executor]
) -> tuple[str, ...]:
    """Add the options of the executor that ``--executor`` names; return their names.

    Raises:
        PluginError: as :func:`load_executor`.
        CommandError: the same, or an option is that of another executor.
    """
    given = list(split_arguments(argv))
    named = [value for key, value, _ in given if key == "--executor" and value]
    name = named[-1] if named else LOCAL_EXECUTOR
    names = option_names(name, base)
    chosen = load_executor(name, base)
    parser.add_class_arguments(chosen, None, skip={*signature(chosen).parameters} - {*names})
    known = parser._option_string_actions
    unknown = [key for key, *_ in given if key not in known]
    for option, owner in _all_options(base) if unknown else ():
        if option in unknown:
            how = f"not of {name}" if named else f"give --executor {owner} as well"
            raise CommandError(f"{option}: is an option of the executor {owner}; {how}")
    return names


def _all_options(base: type[Executor]) -> Iterator[tuple[str, str]]:
    """Yield each option of the installed executors, and whose it is."""
    for name in installed("executor"):
        with contextlib.suppress(PluginError, CommandError):  # `bertlab plugins check` says why
            yield from ((f"--{option}", name) for option in option_names(name, base))
