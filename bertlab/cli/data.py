"""``bertlab tokenizer`` and ``prepare``: text to vocabulary, or to a store."""

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jsonargparse import ArgumentParser

from bertlab.config.merge import loaded, read_request
from bertlab.config.parse import parse_arguments
from bertlab.config.request import to_arguments
from bertlab.config.yaml_files import split_arguments, value_at
from bertlab.errors import (
    CorpusError,
    OutputError,
    add_to_json,
    check_at_least,
    print_table,
    say,
    warn,
    working,
)
from bertlab.plugins.hooks import first_result
from bertlab.plugins.index import load_class, make_plugin

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bertlab.data.corpus.corpus import Corpus
    from bertlab.data.corpus.prepare import OrderedMap

# options that a config has below `data`, beside those of the corpus, and those of another name
_SHARED = {
    "tokenizer": ("kind", "vocab_size", "lowercase"),
    "prepare": ("tokenizer", "max_seq_length", "workers"),
}
_RENAMED = {"kind": "tokenizer_kind", "workers": "prepare_workers"}
Format = Literal["auto", "sentences", "document", "lines", "wikiextractor"]
Errors = Literal["strict", "replace"]


def main(command: str, argv: list[str]) -> int:
    """Run ``tokenizer`` or ``prepare``; return the exit code."""
    argv = [re.sub(r"^--data\.(?=corpus\b)", "--", each) for each in argv]  # as fit has it
    argv = with_config(command, argv)
    parser, added = make_parser(command, argv)
    options = parse_arguments(parser, argv).as_dict()
    del options["config"]
    source = name_corpus(**{name: options.pop(name) for name in signature(name_corpus).parameters})
    if command == "tokenizer":
        make_tokenizer(source, settings={name: options.pop(name) for name in added}, **options)
    else:
        elsewhere = None if added is None else added(options)
        make_store(source, elsewhere=elsewhere, **options)
    return 0


def with_config(command: str, argv: list[str]) -> list[str]:
    """Return arguments with those that a config among them stands for; its other keys are let be.

    All are merged and checked as those of ``fit``, so an argument wins over the file.
    """
    split = [*split_arguments(argv)]
    if not any(key in ("--config", "-c") for key, _, _ in split):
        return argv
    from bertlab.config.run_config import resolve_request  # noqa: PLC0415  torch
    from bertlab.data.run_length import StepSettings  # noqa: PLC0415

    shared = (*signature(name_corpus).parameters, *_SHARED[command])
    keys = {name: _RENAMED.get(name, name) for name in shared}
    merged, others = list[str](), list[str]()
    for option, _, tokens in split:
        name = option.removeprefix("--").partition(".")[0]
        if name in keys:  # --corpus.table=x -> --data.corpus.table=x
            tokens[0] = tokens[0].replace(name, f"data.{keys[name]}", 1)
        (merged if name in keys or option in ("--config", "-c") else others).extend(tokens)
    request = read_request(merged)
    resolved, given = resolve_request(request)["data"], request.values.get("data", {})
    found = {name: resolved[key] for name, key in keys.items() if given.get(key) is not None}
    if "kind" in found:
        found |= {("kind" if key == "name" else key): each for key, each in found["kind"].items()}
    if (length := found.get("max_seq_length")) is not None:  # it may change over a run
        found["max_seq_length"] = StepSettings.read({"max_seq_length": length}).lengths[1]
    return [*to_arguments(found), *others]


def make_parser(
    command: str, argv: Sequence[str] = (), with_hooks: bool = True
) -> tuple[ArgumentParser, Any]:
    """Return the parser of the options, and what ``argv`` has added to it.

    Of ``tokenizer`` the settings of the kind that ``--kind`` names; of ``prepare`` what has the
    text tokenised elsewhere, whose options a package adds, or None.
    """
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    # the corpus's options stand beside the command's own, and become its argument `source`
    parser.add_argument("-c", "--config", help="a config of fit, whose `data` gives these options")
    add_corpus(parser, argv)
    if command == "tokenizer":
        parser.add_function_arguments(make_tokenizer, skip={"source", "settings"})
        return parser, _add_settings(parser, argv)
    parser.add_function_arguments(make_store, skip={"source", "elsewhere"})
    given = {"parser": parser, "argv": argv}
    return parser, first_result("bertlab_prepare", **given) if with_hooks else None


def add_corpus(parser: ArgumentParser, argv: Sequence[str], required: bool = True) -> None:
    """Add the corpus, and how to read it: the arguments of :func:`name_corpus`.

    A source with settings has these below ``--corpus``, as ``fit`` has them below ``data.corpus``.
    """
    given = {key: value for key, value, _ in split_arguments(argv)}
    named = given.get("--corpus.source") or value_at(loaded(given.get("--corpus")), "source")
    parser.add_function_arguments(name_corpus, skip={"corpus"})
    if named is None:
        text = "files, folders, hf:NAME, …, or {source: NAME, …}"
        kind = str | list[str] if required else str | list[str] | None
        parser.add_argument("--corpus", type=kind, required=required, help=text)
    else:
        from bertlab.config.parser import add_source  # noqa: PLC0415  torch, not for --help

        add_source(parser, "corpus", str(named))


def _add_settings(parser: ArgumentParser, argv: Sequence[str]) -> tuple[str, ...]:
    """Add the settings of the kind of tokenizer that ``--kind`` names; return their names."""
    from bertlab.api.tokenizer import TokenizerKind  # noqa: PLC0415  NumPy, not for --help

    named = [value for key, value, _ in split_arguments(argv) if key == "--kind" and value]
    chosen = load_class("tokenizer", named[-1] if named else "wordpiece", TokenizerKind)
    parser.add_class_arguments(chosen, None)
    return tuple(signature(chosen).parameters)


def name_corpus(
    corpus: str | list[str] | dict[str, Any],
    corpus_format: Format = "auto",
    text_column: str = "text",
    errors: Errors = "strict",
    language: str = "en",
) -> "Corpus":
    """The corpus, and how to read it."""
    from bertlab.data.corpus.corpus import Corpus  # noqa: PLC0415  torch, not for --help

    return Corpus.of(corpus, corpus_format, text_column, errors, language)


def make_tokenizer(
    source: "Corpus",
    output: str,
    kind: str = "wordpiece",
    vocab_size: int = 30_000,
    lowercase: bool = True,
    special_tokens: str = "",
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Train a tokenizer, as a folder that transformers loads; --extend MODEL adds pieces to one."""
    from bertlab.api.tokenizer import TokenizerKind  # noqa: PLC0415  NumPy, not for --help
    from bertlab.data.corpus.corpus import read_documents  # noqa: PLC0415  torch
    from bertlab.tokenizer.kinds import save_new, train_tokenizer  # noqa: PLC0415

    folder = Path(output).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"--output: {folder} exists and is not an empty folder")
    texts = (sentence for document in read_documents(source) for sentence in document.sentences)
    chosen = make_plugin("tokenizer", {"name": kind, **(settings or {})}, TokenizerKind)
    with working(f"training {folder.name}"):
        tokenizer = train_tokenizer(chosen, texts, vocab_size, lowercase, special_tokens.split())
    save_new(tokenizer, folder)
    pieces = "word pieces" if kind == "wordpiece" else f"tokens of {kind}"
    add_to_json(output=folder, vocab_size=tokenizer.vocab_size)
    say(f"{folder}: {tokenizer.vocab_size} {pieces}")


def make_store(
    source: "Corpus",
    tokenizer: str,
    output: str,
    workers: int | None = None,
    max_seq_length: int = 128,
    shard_tokens: int | None = None,
    elsewhere: "AbstractContextManager[OrderedMap | None] | None" = None,
) -> None:
    """Tokenise a corpus into a token store and print the data report."""
    from bertlab.tokenizer.files import load_tokenizer  # noqa: PLC0415  tokenizers, not for --help

    loaded, folder = load_tokenizer(Path(tokenizer)), Path(output).expanduser()
    from bertlab.data.corpus.prepare import open_prepared_before, prepare  # noqa: PLC0415  torch
    from bertlab.data.corpus.store import StoreReport, check_pairs  # noqa: PLC0415
    from bertlab.data.loader import report_store  # noqa: PLC0415
    from bertlab.data.sampler import check_max_seq_length  # noqa: PLC0415

    check_max_seq_length(max_seq_length)
    check_at_least("workers", workers, 1)
    store = open_prepared_before(source, loaded, folder)
    if store is None:
        with elsewhere or nullcontext() as away:
            here = workers or 1 if away is None else 1
            store = prepare(source, loaded, folder, here, shard_tokens=shard_tokens, away=away)
    else:
        say(f"{folder}: holds this text already")
    report = StoreReport.read(folder)
    add_to_json(output=folder, report=report)
    try:
        check_pairs(report)
    except CorpusError as error:  # what is trained on it may make no pairs
        warn(f"{folder}: {error}")
    print_table(output, report_store(store, max_seq_length))
