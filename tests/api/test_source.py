"""Data sources of plugins: documents, labelled rows, and what goes wrong with them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.api.examples import Column, DataSource
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.data.examples.source import read_rows, stream_rows
from bertlab.data.sources import open_source, source_of
from bertlab.errors import CorpusError, DataError, PluginError
from bertlab.plugins import index as plugins
from tests.conftest import Command
from tests.plugins.strange_packages import install

CODE = """
from bertlab.data.corpus.documents import RawDocument
from bertlab.api.examples import DataSource

class Counting(DataSource):
    def documents(self):
        for number in range(int(self.argument or 0)):
            text = f"Text {number}. {self.text_column}." + 8 * " And so on."
            yield RawDocument(text, False, f"count {number}")

class Rows(DataSource):
    def examples(self, split):
        for number in range(3 if split == "train" else 0):
            yield {"question": f"text {number}", "label": "ab"[number % 2]}
"""
WANTED = (Column("text"), Column("label", "label", is_truth=True))


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    targets = {
        "count": "sources_of_stranger:Counting",
        "rows": "sources_of_stranger:Rows",
        "lost": "sources_of_stranger:Lost",
    }
    install(tmp_path, "stranger", {"bertlab.sources": targets}, {"sources_of_stranger": CODE})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    yield
    plugins.forget_installed()
    sys.modules.pop("sources_of_stranger", None)


def test_a_strangers_documents_are_a_corpus(stranger: None) -> None:
    corpus = Corpus(["count:3"], text_column="body")
    found = list(read_raw_documents(corpus))
    texts = [each.text.split(" And")[0] for each in found]
    assert texts == [f"Text {number}. body." for number in range(3)]
    assert found[0].source == "count 0"
    assert corpus.fingerprint == Corpus(["count:3"], text_column="body").fingerprint
    assert corpus.fingerprint != Corpus(["count:4"], text_column="body").fingerprint


def test_a_strangers_rows_are_read_as_any(stranger: None) -> None:
    rows = read_rows("rows:x", "train", {"text": "question"}, "auto", WANTED).rows
    assert [dict(row.values) for row in rows] == [
        {"text": f"text {n}", "label": "ab"[n % 2]} for n in range(3)
    ]
    assert rows[1].where == "rows:x train: row 2"
    streamed = list(stream_rows("rows:x", {"text": "question"}, "auto", WANTED, split="train"))
    assert [(each.where, each.values) for each in streamed] == [
        (each.where, each.values) for each in rows
    ]
    assert streamed[0].row == {"question": "text 0"}, "predictions keep the columns of the input"


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("count", "count: holds no text"),
        ("rows:x", r"rows:x: gives labelled rows \(data.source\), no documents"),
        ("lost:1", "'lost' of stranger 1.0 .* has no attribute 'Lost'"),
        ("cuont:3", "did you mean 'count'"),
    ],
)
def test_bad_documents_are_named(stranger: None, location: str, words: str) -> None:
    with pytest.raises((CorpusError, PluginError), match=words):
        list(read_raw_documents(Corpus([location])))


def test_bad_rows_are_named(stranger: None) -> None:
    with pytest.raises(DataError, match=r"count:3: gives documents \(data.corpus\), no labelled"):
        read_rows("count:3", "train", {}, "auto", WANTED)
    with pytest.raises(DataError, match="rows:x dev: holds no rows"):
        read_rows("rows:x", "dev", {}, "auto", WANTED)
    with pytest.raises(DataError, match=r"rows:x train.*text"):
        read_rows("rows:x", "train", {}, "auto", WANTED)


def test_our_own_sources_are_found_the_same_way() -> None:
    assert source_of("python-english") == "python-english"
    assert source_of("hf:owner/name") == "hf"
    assert source_of("texts/hf") is None
    source = open_source("python-english:packages")
    assert isinstance(source, DataSource)
    assert (source.name, source.argument) == ("python-english:packages", "packages")
    with pytest.raises(CorpusError, match="these are labelled rows"):
        list(source.documents())


@pytest.mark.slow
def test_fit_reads_a_strangers_corpus(
    stranger: None, bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    code, printed, error = bertlab(
        "fit", "--config", tiny_config, "--data.corpus", "count:400",
        "--data.corpus_format", "auto",
        "--data.vocab_size", 60, "--run_dir", tmp_path / "run", "--trainer.max_steps", 3,
    )  # fmt: skip
    assert code == 0, error
    assert "400" in printed
