"""A text that another process writes to while a run reads it is refused by name."""

import os
from pathlib import Path

import pytest

from bertlab.data.corpus import prepare as prepare_module
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.corpus.prepare import prepare, prepare_cached, tokenizer_cached
from bertlab.errors import CorpusError
from tests.conftest import Command
from tests.data.corpus.stores import TOKENIZER

TEXT = "a b c\nb c d\n\nc d e\nd e f\n\n" * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "texts"
    there.mkdir()
    for name in ("one", "two"):
        (there / f"{name}.txt").write_text(TEXT, "utf-8")
    return there


def rewrite(file: Path) -> None:
    """Put other text of the same length in the place of a file, with its time."""
    before = file.stat()
    file.write_text(TEXT.replace("e", "g"), "utf-8")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(file: Path) -> None:
    other = file.with_name(".other")
    other.write_text(TEXT.replace("e", "g"), "utf-8")
    other.rename(file)


def lengthen(file: Path) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write("g h i\n")


def cut(file: Path) -> None:
    os.truncate(file, 300)


@pytest.mark.parametrize("change", [rewrite, replace, lengthen, cut])
def test_a_change_before_the_text_is_tokenised(folder: Path, tmp_path: Path, change) -> None:
    corpus = Corpus([str(folder)], format="sentences")
    assert corpus.fingerprint  # first: the whole is read
    change(folder / "two.txt")
    with pytest.raises(CorpusError, match=r"two\.txt: changed while the text was read"):
        prepare(corpus, TOKENIZER, tmp_path / "store")
    with pytest.raises(CorpusError, match=r"two\.txt: changed while the text was read"):
        prepare_cached(corpus, TOKENIZER, tmp_path / "cache")
    left = [each.name for each in (tmp_path / "cache/stores").iterdir()]
    assert not any(each for each in left if not each.endswith(".lock"))
    assert not (tmp_path / "store").exists()


def test_a_change_while_a_tokenizer_is_trained(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = prepare_module.train_tokenizer

    def train(*given):
        made = trained(*given)
        rewrite(folder / "one.txt")
        return made

    monkeypatch.setattr(prepare_module, "train_tokenizer", train)
    corpus = Corpus([str(folder)], format="sentences")
    with pytest.raises(CorpusError, match=r"one\.txt: changed while the text was read"):
        tokenizer_cached(corpus, 60, cache_dir=tmp_path / "cache")
    assert not [each for each in tmp_path.glob("cache/tokenizers/*") if each.is_dir()]


def test_a_file_that_is_gone(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus([str(folder)], format="sentences")
    assert corpus.fingerprint
    (folder / "two.txt").unlink()
    with pytest.raises(CorpusError, match=r"two\.txt"):
        prepare(corpus, TOKENIZER, tmp_path / "store")


def test_a_file_that_appears_is_not_read(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus([str(folder)], format="sentences")
    before = corpus.fingerprint
    (folder / "three.txt").write_text(TEXT, "utf-8")
    store = prepare(corpus, TOKENIZER, tmp_path / "store")
    assert store.metadata.corpus_fingerprint == before
    assert len(store) == 160
    assert Corpus([str(folder)], format="sentences").fingerprint != before


def test_a_file_that_was_only_touched(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus([str(folder)], format="sentences")
    assert corpus.fingerprint
    os.utime(folder / "one.txt", (1, 1))
    os.link(folder / "two.txt", folder / ".kept")  # as a copy for safety does
    prepare(corpus, TOKENIZER, tmp_path / "store")


def test_a_run_stops(
    bertlab: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = prepare_module.read_batches

    def read_and_change(corpus):
        yield from read(corpus)
        rewrite(folder / "two.txt")

    monkeypatch.setattr(prepare_module, "read_batches", read_and_change)
    tokenizer = tmp_path / "tokenizer"
    TOKENIZER.save(tokenizer)
    source = ("--corpus", folder, "--corpus_format", "sentences", "--tokenizer", tokenizer)
    code, _, error = bertlab("prepare", *source, "--output", tmp_path / "store")
    assert code == 2
    assert f"error E301: {folder}/two.txt: changed while the text was read" in error
    assert not (tmp_path / "store").exists()
