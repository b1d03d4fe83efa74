"""``bertlab take-words``: how many words are taken, of which documents, and all of each."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.data.corpus.corpus import Corpus, read_documents, read_raw_documents
from bertlab.errors import CommandError, CorpusError, OutputError
from bertlab_evaluations import take_words as take_words_module
from bertlab_evaluations.take_words import _read_words, take_words
from tests.conftest import Command

# three sources: a document a row, a document a file, a sentence a line
ROWS = ["one two three", "four  five\n\nsix", "seven"]
NOVEL = "Chapter one.\n\nIt was late -- go,\nshe said. They went."
SENTENCES = "It is a line.\nIt is another line.\n\nHe came here.\nHe went.\n\nHe sat. Is it?\nNo.\n"


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in ROWS), "utf-8")
    folder = tmp_path / "novels"
    folder.mkdir()
    (folder / "novel.txt.gz").write_bytes(gzip.compress(NOVEL.encode()))
    sentences = tmp_path / "sentences.txt"
    sentences.write_text(SENTENCES, "utf-8")
    return [str(rows), str(folder), str(sentences)]


def texts(path: Path, part: str = "text") -> list[str]:
    """Return the texts of a taken corpus, read as ``data.corpus`` reads a folder."""
    return [raw.text for raw in read_raw_documents(Corpus([str(path / part)]))]


def test_all_documents_are_read_again_with_their_sentences(
    sources: list[str], tmp_path: Path
) -> None:
    corpus = Corpus(sources)
    total = sum(len(raw.text.split()) for raw in read_raw_documents(corpus))
    found = take_words(corpus, total, tmp_path / "out")
    before = [document.sentences for document in read_documents(corpus)]
    again = [
        document.sentences for document in read_documents(Corpus([str(tmp_path / "out/text")]))
    ]
    assert found["words"] == total
    assert found["documents"] == len(before) == len(ROWS) + 1 + 3
    assert again[:-1] == before[:-1]
    # a line of several sentences, which were one by the file's layout, is split at most
    assert before[-1] == ["He sat. Is it?", "No."]
    assert again[-1] == ["He sat.", "Is it?", "No."]


def test_a_text_that_changes_while_it_is_read(
    sources: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash in the manifest would not be that of the words."""
    taken = take_words_module._take_in_order

    def take(*given: Any) -> None:
        taken(*given)
        Path(sources[2]).write_text(SENTENCES.replace("He", "We"), "utf-8")

    monkeypatch.setattr(take_words_module, "_take_in_order", take)
    with pytest.raises(CorpusError, match=r"sentences\.txt: changed while the text was read"):
        take_words(Corpus(sources), 20, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@given(
    documents=st.lists(
        st.text(st.characters(exclude_categories=["Cs", "N"], exclude_characters="\r")).filter(
            lambda text: not text.isspace() and text != ""
        ),
        min_size=1,
        max_size=12,
    ),
    share=st.floats(0.1, 1),
    seed=st.none() | st.integers(0, 3),
)
def test_never_more_words_than_asked_for_and_each_document_whole(
    documents: list[str],
    share: float,
    seed: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("taken")
    rows = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    (folder / "in.jsonl").write_text(rows, "utf-8")
    lengths = [len(text.split()) for text in documents]
    words = max(1, int(share * sum(lengths)))
    corpus = Corpus([str(folder / "in.jsonl")])
    if sum(lengths) < words or all(length > words for length in lengths):
        with pytest.raises(CorpusError):
            take_words(corpus, words, folder / "out", seed)
        return
    found = take_words(corpus, words, folder / "out", seed)
    taken = texts(folder / "out")
    assert found["words"] == sum(len(text.split()) for text in taken) <= words
    assert found["bytes"] == sum(len(text.encode()) for text in taken)
    left = list(documents)
    for text in taken:  # each of them once, unchanged
        left.remove(text)
    if seed is None:
        assert [text for text in documents if text in taken][:1] == taken[:1]
    # of what is left nothing would have fitted, so few words are missing
    missing = words - found["words"]
    assert missing <= words // 1000 or all(len(text.split()) > missing for text in left)


def test_in_the_order_given_and_what_is_too_long_is_passed_over(
    sources: list[str], tmp_path: Path
) -> None:
    found = take_words(Corpus(sources), 8, tmp_path / "out")
    # 3 + 3 + 1 words, and no document of one word follows
    assert texts(tmp_path / "out") == ROWS
    assert found["words"] == 7
    assert [each["words"] for each in found["sources"]] == [7, 0, 0]
    assert [each["passed_over"] for each in found["sources"]] == [0, 1, 3]


def test_a_seed_mixes_the_sources_and_gives_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        rows = [json.dumps({"text": f"{name} {number}"}) for number in range(200)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), "utf-8")
    corpus = Corpus([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    found = {
        name: take_words(corpus, 200, tmp_path / name, seed)
        for name, seed in {"none": None, "one": 1, "again": 1, "two": 2}.items()
    }
    assert [each["words"] for each in found["none"]["sources"]] == [200, 0]
    for name in ("one", "two"):
        # 100 of 400 documents: 50 of each source expected, deviation 4.3
        assert all(70 <= each["words"] <= 130 for each in found[name]["sources"])
        first = [text[0] for text in texts(tmp_path / name)]
        assert first != sorted(first)
    digests = {name: each["output"]["sha256"] for name, each in found.items()}
    assert digests["one"] == digests["again"]
    assert len(set(digests.values())) == 3


@pytest.mark.slow
@given(
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=40),
    seed=st.none() | st.integers(0, 3),
    words=st.integers(1, 300),
    held_out=st.integers(1, 200),
)
def test_the_words_that_come_next_are_other_documents(
    lengths: list[int],
    seed: int | None,
    words: int,
    held_out: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("taken")
    documents = [f"d{number}" + " w" * (length - 1) for number, length in enumerate(lengths)]
    rows = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    (folder / "in.jsonl").write_text(rows, "utf-8")
    corpus = Corpus([str(folder / "in.jsonl")])
    try:
        alone = take_words(corpus, words, folder / "alone", seed)
        both = take_words(corpus, words, folder / "both", seed, held_out)
    except CorpusError:
        assert not (folder / "both").exists()
        assert sum(lengths) < words + held_out or max(lengths) > 1
        return
    assert both["output"] == alone["output"]
    taken, apart = texts(folder / "both"), texts(folder / "both", "held_out")
    assert not set(taken) & set(apart)
    assert set(apart) <= set(documents)
    assert both["held_out"]["words"] == sum(len(text.split()) for text in apart) <= held_out
    if seed is None:
        assert documents.index(taken[-1]) < documents.index(apart[0])


def test_too_few_words_for_what_is_held_out(
    sources: list[str], tmp_path: Path, bertlab: Command
) -> None:
    given = ("--corpus", sources[0], "--words", 6, "--held_out", "1K", "--output", tmp_path / "out")
    code, _, error = bertlab("take-words", *given)
    assert code == 2
    assert "has 1 words after those of --words, expected at least 1,000 (--held_out)" in error
    assert "; documents too long for the rest of --words are in no part" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "novels", "rows.jsonl", "sentences.txt",
    ]  # fmt: skip


def test_the_manifest_says_what_was_read_and_written(
    sources: list[str], tmp_path: Path, bertlab: Command
) -> None:
    out = tmp_path / "out"
    given = ("--corpus", json.dumps(sources), "--words", "0.01K", "--shuffle", 4, "--output", out)
    code, text, error = bertlab("take-words", *given)
    assert code == 0, error
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert f"{manifest['words']:,} words of 10 asked for" in text
    assert manifest["command"] == ["bertlab", "take-words", *map(str, given)]
    assert manifest["options"]["shuffle"] == 4
    assert manifest["options"]["corpus"]["sources"] == sources
    files = [Path(sources[0]), Path(sources[1]) / "novel.txt.gz", Path(sources[2])]
    assert manifest["inputs"] == {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }
    written = (out / manifest["output"]["file"]).read_bytes()
    assert manifest["output"]["sha256"] == hashlib.sha256(written).hexdigest()
    assert manifest["output"]["size"] == len(written)
    for kind in ("words", "documents", "bytes"):
        assert manifest[kind] == sum(each[kind] for each in manifest["sources"])
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "text"]


def test_too_few_words_leave_nothing_behind(sources: list[str], tmp_path: Path) -> None:
    total = sum(len(raw.text.split()) for raw in read_raw_documents(Corpus(sources)))
    (tmp_path / "place").mkdir()
    for seed in (None, 1):
        with pytest.raises(CorpusError, match=f"has {total} words, expected at least 1,000,000"):
            take_words(Corpus(sources), 10**6, tmp_path / "place" / "out", seed)
    with pytest.raises(CorpusError, match="each of its documents has more words than --words 2"):
        take_words(Corpus(sources[1:2]), 2, tmp_path / "place" / "out")
    assert list((tmp_path / "place").iterdir()) == []


def test_another_folder_is_not_overwritten(sources: list[str], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds something else already"):
        take_words(Corpus(sources), 5, tmp_path)


@pytest.mark.parametrize("words", ["10X", "M", "-5", "0", "nan", "inf", "1.5", ""])
def test_words_that_are_no_number(
    words: str, sources: list[str], tmp_path: Path, bertlab: Command
) -> None:
    given = ("--corpus", sources[0], "--output", tmp_path / "out")
    code, _, error = bertlab("take-words", *given, f"--words={words}")
    assert code == 2
    assert "--words" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", ["7", "0.007K", "7e0", "7_"])
def test_forms_of_a_number_of_words(
    words: str, sources: list[str], tmp_path: Path, bertlab: Command
) -> None:
    given = ("--corpus", sources[0], "--output", tmp_path / "out", "--words", words)
    code, text, _ = bertlab("take-words", *given)
    assert (code, "7 words of 7 asked for" in text) == ((0, True) if words != "7_" else (2, False))


@pytest.mark.parametrize(
    ("text", "words"),
    [("2.01K", 2010), ("16.1k", 16_100), ("4.02K", 4020), ("1e7", 10**7), ("0.5M", 500_000)],
)
def test_numbers_of_words_are_exact(text: str, words: int) -> None:
    assert _read_words("--words", text) == words


@pytest.mark.parametrize(
    "text", ["2.0001K", "0", "-1", "inf", "nan", "K", "1e-30000000", "1e30000000", "9" * 400]
)
def test_what_is_no_number_of_words_is_refused_at_once(text: str) -> None:
    with pytest.raises(CommandError, match="expected a whole number of words"):
        _read_words("--words", text)
