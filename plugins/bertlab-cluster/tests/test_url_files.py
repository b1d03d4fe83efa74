"""Text behind URLs: in memory (``memory://``) and on a web server of this machine."""

import gzip
import json
import os
import sys
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertlab.api.examples import Column
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.data.corpus.store import TokenStore
from bertlab.data.examples.source import read_rows
from bertlab.errors import CorpusError, OutOfMemoryError
from bertlab_cluster import url_files
from bertlab_cluster.url_files import UrlFile
from ftp_server import serving_ftp
from tests.conftest import Command
from tests.data.web_server import Handler, serving

FILES = {
    "a.txt": "It rains. The fox sleeps.\nIt is warm.\n",
    "deep/b.txt.gz": "A packed text. It is short.\n",
    "deep/.hidden": "no text",
    "rows.csv": "text,n\nHello there.,1\nNA,2\n",
    "rows.jsonl": json.dumps({"text": "A row.", "label": "x"}) + "\n",
    "z.txt": "The last of the files.\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "texts"
    for name, text in FILES.items():
        path = there / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    pq.write_table(pa.table({"text": ["One.", "Two."], "label": ["x", "y"]}), there / "t.parquet")
    return there


@pytest.fixture
def in_memory(folder: Path) -> Iterator[str]:
    system = fsspec.filesystem("memory")
    system.put(f"{folder}/", "/texts", recursive=True)
    yield "memory://texts"
    system.rm("/texts", recursive=True)


def texts(*sources: str) -> list[str]:
    return [document.text for document in read_raw_documents(Corpus(list(sources)))]


def refused(*sources: str) -> str:
    with pytest.raises(CorpusError) as found:
        texts(*sources)
    return str(found.value)


def test_a_folder_is_what_it_would_be_here(folder: Path, in_memory: str) -> None:
    assert texts(in_memory) == texts(str(folder))
    assert Corpus([in_memory]).fingerprint == Corpus([str(folder)]).fingerprint
    assert "no text" not in texts(in_memory)


def test_the_fingerprint_is_of_the_content(folder: Path, in_memory: str) -> None:
    before = Corpus([f"{in_memory}/a.txt"]).fingerprint
    assert before == Corpus([str(folder / "a.txt")]).fingerprint
    fsspec.filesystem("memory").pipe("/texts/a.txt", b"Another text.")
    assert Corpus([f"{in_memory}/a.txt"]).fingerprint != before


def test_a_pattern(folder: Path, in_memory: str) -> None:
    assert texts(f"{in_memory}/*.txt") == texts(str(folder / "*.txt"))
    assert "none matches" in refused(f"{in_memory}/*.nothing")


@pytest.mark.parametrize("name", ["a.txt", "deep/b.txt.gz", "rows.csv", "rows.jsonl", "t.parquet"])
def test_each_format_from_a_web_server(folder: Path, name: str) -> None:
    with serving(folder) as address:
        url = f"{address}/{name}"
        assert texts(url) == texts(str(folder / name))
        assert Corpus([url]).fingerprint == Corpus([str(folder / name)]).fingerprint


def test_what_a_server_is_asked_for_is_no_part_of_the_name(folder: Path) -> None:
    with serving(folder) as address:
        assert texts(f"{address}/deep/b.txt.gz?download=true") == [FILES["deep/b.txt.gz"].strip()]


@pytest.mark.slow
def test_a_folder_of_an_ftp_server(folder: Path) -> None:
    (folder / "z.txt").write_text("A longer line of text.\n" * 20_000, "utf-8")
    with serving_ftp(folder) as address:
        assert texts(f"{address}/deep") == texts(str(folder / "deep"))
        assert texts(f"{address}/deep/*.gz") == texts(str(folder / "deep/*.gz"))
        assert (
            Corpus([f"{address}/z.txt"]).fingerprint == Corpus([str(folder / "z.txt")]).fingerprint
        )
        assert refused(f"{address}/no.txt") == f"{address}/no.txt: cannot be read: not found"
    assert "refused" in refused(f"{address}/z.txt")


def rewrite(file: Path) -> None:
    """Put other text of the same length in the place of a file, with its time."""
    before = file.stat()
    file.write_text(file.read_text("utf-8").replace("e", "o"), "utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_text_of_a_web_server_that_changes(folder: Path) -> None:
    with serving(folder) as address:
        corpus = Corpus([f"{address}/z.txt", f"{address}/a.txt"])
        assert corpus.fingerprint
        corpus.check_unchanged()
        rewrite(folder / "a.txt")
        with pytest.raises(CorpusError, match=rf"{address}/a\.txt: changed while the text was"):
            corpus.check_unchanged()
    with pytest.raises(CorpusError, match=rf"{address}/z\.txt: cannot be read"):
        corpus.check_unchanged()


def test_the_tag_of_a_web_server_is_asked_for_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = "1"

    def end_headers(self: Handler) -> None:
        self.send_header("ETag", tag)
        SimpleHTTPRequestHandler.end_headers(self)

    monkeypatch.setattr(Handler, "end_headers", end_headers)
    with serving(folder) as address:
        corpus = Corpus([f"{address}/z.txt"])
        assert corpus.fingerprint
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(UrlFile, "open")
            corpus.check_unchanged()
        tag = "2"  # of another machine with the same text, perhaps
        corpus.check_unchanged()
        rewrite(folder / "z.txt")
        with pytest.raises(CorpusError, match=r"z\.txt: changed while the text was read"):
            corpus.check_unchanged()


def test_a_text_in_memory_that_changes(in_memory: str) -> None:
    corpus = Corpus([in_memory])
    assert corpus.fingerprint
    corpus.check_unchanged()
    fsspec.filesystem("memory").pipe("/texts/a.txt", b"It snows. The fox sleeps.\nIt is cold.\n")
    with pytest.raises(CorpusError, match=r"a\.txt: changed while the text was read"):
        corpus.check_unchanged()


def test_a_file_behind_file_is_that_file(folder: Path) -> None:
    assert texts(f"file://{folder}/a.txt") == texts(str(folder / "a.txt"))


@pytest.mark.parametrize("name", ["rows.jsonl", "t.parquet"])
def test_labelled_rows(folder: Path, in_memory: str, name: str) -> None:
    def rows(location: str) -> list[object]:
        columns = (Column("text"), Column("label", "label"))
        return [each.values for each in read_rows(location, None, {}, "auto", columns).rows]

    with serving(folder) as address:
        expected = rows(str(folder / name))
        assert rows(f"{address}/{name}") == expected
        assert rows(f"{in_memory}/{name}") == expected


@pytest.mark.parametrize("claimed", [None, 10**12])
@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.jsonl.gz", "bomb.arrow.gz"])
def test_rows_of_any_size_take_little_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch, claimed: int | None, name: str
) -> None:
    text = '{"text": "It is", "label": "a"}\n' if "json" in name else "It is,a\n"
    content = f"text,label\n{text * 4000}".encode()
    if "json" in name:
        content = (text * 4000).encode()
    elif "arrow" in name:
        content = bytes(2**21)
    (folder / name).write_bytes(gzip.compress(content))
    monkeypatch.setenv("BERTLAB_READING_MB", "1")

    def send_header(self: Handler, key: str, value: str) -> None:
        if key != "Content-Length":
            SimpleHTTPRequestHandler.send_header(self, key, value)
        elif claimed is not None and self.command == "HEAD":
            SimpleHTTPRequestHandler.send_header(self, key, str(claimed))
            SimpleHTTPRequestHandler.send_header(self, "ETag", "1")

    monkeypatch.setattr(Handler, "send_header", send_header)
    with serving(folder) as address, pytest.raises(OutOfMemoryError, match=f"{name}.*at most 1 MB"):
        read_rows(f"{address}/{name}", None, {}, "auto", (Column("text"), Column("label", "label")))


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)  # as where it is not installed
    assert refused("s3://bucket/text.txt") == (
        "s3://bucket/text.txt: cannot be read: its protocol needs a package that is missing; "
        "install it: pip install s3fs"
    )


def test_what_a_protocol_quotes_of_a_url_has_no_secrets() -> None:
    url = "hf://me:passw0rd@x/y.txt?sig=c4n4ry"
    words = r"the id \*\*\*, sig=\*\*\*"
    with pytest.raises(OSError, match=words) as told, url_files.explain_remote(url):
        raise ValueError("the id me:passw0rd, sig=c4n4ry")
    assert "passw0rd" not in told.value.strerror


def test_a_protocol_that_there_is_not() -> None:
    assert refused("htps://x/y.txt").endswith("no protocol is called 'htps'; did you mean 'https'?")
    assert "a chain of them" in refused("zip://a.txt::memory://b.zip")


def test_what_a_server_says_is_passed_on(folder: Path) -> None:
    with serving(folder) as address:
        assert refused(f"{address}/no.txt") == f"{address}/no.txt: cannot be read: not found"
        assert "500" in refused(f"{address}/500")
        assert refused(f"{address}/broken.txt").startswith(f"{address}/broken.txt: cannot be read:")
    assert "Connect" in refused(f"{address}/a.txt")


@pytest.mark.slow
def test_a_server_that_says_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_files, "PATIENCE", 0.3)
    with serving(folder) as address:
        assert refused(f"{address}/silent").endswith("cannot be read: no answer for 0 s")


def test_all_names_are_looked_at_before_any_text_is_read(in_memory: str) -> None:
    documents = read_raw_documents(Corpus([f"{in_memory}/a.txt", f"{in_memory}/no.txt"]))
    with pytest.raises(CorpusError, match=r"no\.txt: cannot be read: not found"):
        next(documents)


@pytest.mark.slow
def test_the_commands(bertlab: Command, corpus_file: Path, tmp_path: Path) -> None:
    def named(corpus: object) -> list[object]:
        return ["--corpus", corpus, "--corpus_format", "sentences"]

    def store(corpus: object, name: str) -> TokenStore:
        source = ["--corpus", corpus, "--corpus_format", "sentences"]
        vocabulary = tmp_path / f"tokenizer-{name}"
        made = bertlab("tokenizer", *source, "--vocab_size", 300, "--output", vocabulary)
        assert made[0] == 0, made
        made = bertlab("prepare", *source, "--tokenizer", vocabulary, "--output", tmp_path / name)
        assert made[0] == 0, made
        return TokenStore.open(tmp_path / name)

    with serving(corpus_file.parent) as address:
        there = store(f"{address}/{corpus_file.name}", "there")
        taken = ["--words", 5000, "--output", tmp_path / "taken"]
        made = bertlab("take-words", *named(f"{address}/{corpus_file.name}"), *taken)
        assert made[0] == 0, made
        code, _, error = bertlab("take-words", "--corpus", f"{address}/no.txt", *taken[:-1], "x")
    here = store(corpus_file, "here")
    assert there.digest == here.digest
    assert there.metadata == here.metadata
    assert (code, error) == (
        2,
        f"bertlab: error E301: {address}/no.txt: cannot be read: not found\n",
    )
