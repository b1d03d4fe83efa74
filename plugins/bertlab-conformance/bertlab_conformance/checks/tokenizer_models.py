"""Checks of classes that read a type of tokenizer: files go in and come back, ids are of text."""

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bertlab.api import Tokenizer
from bertlab.extend import TokenizerFiles
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check


class TokenizerModelCase(Case):
    """A class of tokenizers under test, with the ``tokenizer.json`` that its author gives."""

    plugin: type[Tokenizer]

    @cached_property
    def read(self) -> Tokenizer:
        """The tokenizer of the given file."""
        if (given := self.options.arguments.get("path")) is None:
            raise NotApplicable("no file is given: arguments={'path': 'tokenizer.json'}")
        return self.of_file(Path(given))

    def of_file(self, path: Path) -> Tokenizer:
        """Return the tokenizer of a ``tokenizer.json``, with the config beside it."""
        beside = path.with_name("tokenizer_config.json")
        config = json.loads(beside.read_text("utf-8")) if beside.is_file() else {}
        content = json.loads(path.read_text("utf-8"))
        return self.plugin.from_files(TokenizerFiles(path, content, config))

    @cached_property
    def texts(self) -> list[str]:
        """Texts of the kit's language; some are empty, or hold the names of special tokens."""
        special = " ".join(self.read.special.names())
        return [*(self.language.text(words, words) for words in (1, 5, 12)), "", f"the {special}"]


@check("tokenizer_model", after=("is_complete",))
def files_come_back(case: TokenizerModelCase) -> None:
    """What ``to_json`` and ``save`` write is read as an equal tokenizer."""
    read = case.read

    def of_text(folder: Path) -> Tokenizer:
        content = json.loads(read.to_json())
        state, roles = content.get("tokenizer", content), content.get("special_tokens", {})
        return case.plugin.from_files(TokenizerFiles(folder, state, roles))

    def of_folder(folder: Path) -> Tokenizer:
        read.save(folder)
        return case.of_file(folder / "tokenizer.json")

    ways: dict[str, Callable[[Path], Tokenizer]] = {"to_json()": of_text, "save()": of_folder}
    for way, again in ways.items():
        with TemporaryDirectory() as folder:
            found = again(Path(folder))
        if found.fingerprint != read.fingerprint:
            raise ConformanceFailure(
                f"what {way} wrote has another fingerprint than what was read",
                "write all that decides the ids; runs, stores and exports keep nothing else",
            )


@check("tokenizer_model", after=("is_complete",))
def many_texts_are_as_each_alone(case: TokenizerModelCase) -> None:
    """``encode_texts`` gives the ids of each text end to end, in ``dtype``, with their lengths."""
    ids, lengths = case.read.encode_texts(case.texts)
    alone = [case.read.encode_texts([text])[0] for text in case.texts]
    if [*lengths] != [len(each) for each in alone] or not np.array_equal(ids, np.hstack(alone)):
        raise ConformanceFailure(
            f"of {len(alone)} texts encode_texts() gives {len(ids)} ids and lengths {[*lengths]}; "
            f"of each alone {[len(each) for each in alone]}",
            "lay the ids of all texts end to end, and return how many each has",
        )
    if ids.dtype != case.read.dtype:
        raise ConformanceFailure(f"ids are {ids.dtype}", f"return {case.read.dtype}: self.dtype")


@check("tokenizer_model", after=("many_texts_are_as_each_alone",))
def special_tokens_in_a_corpus_are_text(case: TokenizerModelCase) -> None:
    """``encode_texts`` takes ``[MASK]`` in a text for plain text; no text becomes a special id."""
    ids, _ = case.read.encode_texts(case.texts)
    found = set(ids.tolist()) & set(case.read.special_ids.tolist()) - {case.read.unk_id}
    if found:
        names = ", ".join(map(case.read.token, sorted(found)))
        raise ConformanceFailure(
            f"encode_texts() makes {names} of a text",
            "set encode_special_tokens = True on a backend of its own",
        )
