import gzip
import json
import pickle
import re
import textwrap
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertlab.data.corpus import documents as documents_module
from bertlab.data.corpus.corpus import (
    Corpus,
    RawDocument,
    read_documents,
    read_raw_documents,
    split_sentences,
)
from bertlab.data.corpus.documents import detect_format, split_paragraphs
from bertlab.data.rows import lines as lines_module
from bertlab.data.rows.lines import MAX_LINE, read_lines
from bertlab.errors import ConfigError, CorpusError

SENTENCES = (
    "The rain had only ceased with the gray streaks of morning.\n"
    "This was nearly opposite.\n"
    "Gold, surely!\n"
    "\n"
    "The fountain of classic wisdom, Hypatia herself.\n"
    "From my youth I felt in me a soul above the herd.\n"
)
WIKI = (
    '<doc id="1" url="u" title="Salt">\nSalt\n\n'
    "Salt is a mineral. It dissolves in water &amp; is eaten.\nUses.\n\n</doc>\n"
    '<doc id="2" url="u" title="Iron">\nIron\n\nIron is a metal.\n</doc>\n'
)
NOVEL = [
    "Mr. Cassius crossed the highway, and stopped suddenly. Something glittered in the nearest red "
    "pool before him. It was gold, and it was his, as far as he could see on that quiet morning.",
    "But it was not an irregular, shapeless fragment of crude ore, fresh from the crucible of the "
    "earth. Looking at it more attentively, he saw that it bore an inscription, which he read.",
]
NOVEL_SENTENCES = [5, 2]
relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(path: Path, text: str) -> str:
    data = text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def sentences_of(*sources, **fields):
    return [document.sentences for document in read_documents(Corpus(list(sources), **fields))]


def fails(*sources, **fields):
    with pytest.raises(CorpusError) as error:
        sentences_of(*sources, **fields)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz"])
def test_sentences_format(tmp_path, name):
    source = write(tmp_path / name, SENTENCES)
    documents = list(read_documents(Corpus([source])))
    assert [document.source for document in documents] == [f"{source}:1", f"{source}:5"]
    blocks = SENTENCES.strip().split("\n\n")
    assert [document.sentences for document in documents] == [b.split("\n") for b in blocks]


def test_lines_are_documents_of_several_sentences(tmp_path):
    source = write(tmp_path / "a", "\n".join(["", *NOVEL, "  ", "One.\r", ""]))
    documents = list(read_documents(Corpus([source], format="lines")))
    assert [document.source for document in documents] == [f"{source}:{n}" for n in (2, 3, 5)]
    assert [len(document.sentences) for document in documents] == [3, 2, 1]


@pytest.mark.parametrize("name", ["wiki_00", "wiki_00.gz"])
def test_wikiextractor_format(tmp_path, name):
    assert sentences_of(write(tmp_path / name, WIKI)) == [
        ["Salt", "Salt is a mineral.", "It dissolves in water & is eaten.", "Uses."],
        ["Iron", "Iron is a metal."],
    ]


@pytest.mark.parametrize("gap", ["\n\n", "\n"])
@pytest.mark.parametrize("width", [60, 75, 10**6])
def test_document_format_joins_wrapped_lines(tmp_path, gap, width):
    text = gap.join(textwrap.fill(paragraph, width) for paragraph in NOVEL)
    [sentences] = sentences_of(write(tmp_path / "novel.txt", text))
    assert sentences[0] == "Mr. Cassius crossed the highway, and stopped suddenly."
    assert len(sentences) == 5
    assert " ".join(sentences) == " ".join(NOVEL)


def test_paragraphs_without_blank_lines_between_them():
    wrapped = [textwrap.fill(paragraph, 60) for paragraph in NOVEL]
    assert split_paragraphs("\n".join(wrapped)) == NOVEL


def test_verse_and_headings_are_not_joined():
    prose = textwrap.fill(" ".join(NOVEL * 4), 72)
    text = f"CHAPTER I\n{prose}\n\nThe drums and the fifes,\nOh, sweetly they did play,\n"
    assert split_paragraphs(text) == [
        "CHAPTER I",
        " ".join(NOVEL * 4),
        "The drums and the fifes,",
        "Oh, sweetly they did play,",
    ]


def test_a_line_with_room_for_the_next_word_ends_a_paragraph_behind_a_sentence():
    wide, narrow = " ".join(["word"] * 12), " ".join(["word"] * 10)  # with the next: 92 % of 59
    text = f"{wide}\n{narrow}\n{wide}"
    assert split_paragraphs(text) == [f"{wide} {narrow} {wide}"]
    assert split_paragraphs(f"{wide}\n{narrow}.\n{wide}") == [f"{wide} {narrow}.", wide]


def test_word_wrapped_at_its_hyphen_becomes_whole():
    assert split_paragraphs("a long line that ends in well-\nknown words here.\n") == [
        "a long line that ends in well-known words here."
    ]


words = st.text("abcdefghijklmnopqrstuvwxyzé", min_size=1, max_size=12)


@pytest.mark.slow
@relaxed
@given(
    st.lists(st.lists(words, min_size=1, max_size=60), min_size=1, max_size=5),
    st.integers(20, 110),
)
def test_wrapping_is_undone(paragraphs, width):
    expected = [" ".join(paragraph) for paragraph in paragraphs]
    text = "\n\n".join(textwrap.fill(p, width, break_long_words=False) for p in expected)
    assert split_paragraphs(text) == expected


@relaxed
@given(st.text(), st.booleans())
def test_splitting_loses_only_whitespace(text, presplit):
    sentences = split_sentences(RawDocument(text, presplit, "test"), "en")
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    assert not any("\n" in sentence for sentence in sentences)


def test_no_sentence_crosses_a_paragraph():
    long = "He went on and on, as he did every day of the week, and never came to any end at all"
    assert split_sentences(RawDocument(f"{long} {long}\n{long} {long}\n", False, "")) == [
        f"{long} {long}",
        f"{long} {long}",
    ]


def test_an_unbalanced_quotation_mark_does_not_swallow_the_text():
    text = '"Oh, he said. ' + "It was a long day in the quiet town of ours. " * 100
    assert max(map(len, split_sentences(RawDocument(text, False, "")))) < 100


def test_workers_can_split():
    raw = RawDocument("It is. So be it.", False, "x")
    split, raw = pickle.loads(pickle.dumps((split_sentences, raw)))
    assert split(raw, "en") == ["It is.", "So be it."]


def test_language(tmp_path):
    source = write(tmp_path / "de.txt", "Das ist z. B. Dr. Maier. Er kommt am 3. Mai.")
    assert sentences_of(source, language="de") == [
        ["Das ist z. B. Dr. Maier.", "Er kommt am 3. Mai."]
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SENTENCES, "sentences"),
        (WIKI, "wikiextractor"),
        ("\n\n" + WIKI, "wikiextractor"),
        ("\n\n".join(NOVEL), "document"),
        ("\n".join(NOVEL), "document"),
        ("\n\n".join(textwrap.fill(paragraph, 70) for paragraph in NOVEL), "document"),
        ("'Yes!'\n\n'No!'\n\n'Why?'\n", "document"),  # dialogue, a paragraph a line
        ("One sentence.\nAnother one.\n", "document"),  # no document ends: nothing to part
        ("", "document"),
    ],
)
def test_detection(tmp_path, text, expected):
    write(tmp_path / "a", text)
    assert detect_format(tmp_path / "a", "strict", "en") == expected


def test_format_overrules_detection(tmp_path):
    source = write(tmp_path / "a", SENTENCES)
    assert len(sentences_of(source, format="document")) == 1
    text = write(tmp_path / "b", "One. Two.\n\nThree. Four.\n")
    assert sentences_of(text, format="sentences") == [["One. Two."], ["Three. Four."]]


lines_of_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\ufeff"), max_size=8
)


@relaxed
@given(st.lists(lines_of_text), st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 7))
def test_lines_do_not_depend_on_blocks(tmp_path, lines, end, block):
    path = tmp_path / "a.txt"
    path.write_bytes(end.join(lines).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK", block)
        found = list(read_lines(path, "strict", MAX_LINE))
    while lines and not lines[-1] and len(found) < len(lines):
        lines = lines[:-1]
    assert found == lines


@relaxed
@given(st.text(min_size=1), st.integers(0, 50), st.integers(1, 9), st.booleans())
def test_invalid_utf8_is_named_with_its_offset(tmp_path, text, at, block, packed):
    before, after = text[:at].encode(errors="replace"), text[at:].encode(errors="replace")
    path = tmp_path / ("a.gz" if packed else "a")
    data = before + b"\xff" + after
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK", block)
        with pytest.raises(
            CorpusError, match=f"a.*: not UTF-8 at byte offset {len(before)}[ \\w]* "
        ):
            list(read_lines(path, "strict", MAX_LINE))
        replaced = "\n".join(read_lines(path, "replace", MAX_LINE))
    assert "\ufffd" in replaced


def test_errors_replace(tmp_path):
    (tmp_path / "a").write_bytes(b"Caf\xe9 noir.")
    assert "--errors replace" in fails(str(tmp_path / "a"))
    assert sentences_of(str(tmp_path / "a"), errors="replace") == [["Caf\ufffd noir."]]


def test_character_cut_off_at_the_end(tmp_path):
    (tmp_path / "a").write_bytes("ok é".encode()[:-1])
    assert "byte offset 3" in fails(str(tmp_path / "a"))


def test_disguised_files(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(b"text"))
    (tmp_path / "b").write_bytes("text".encode("utf-16"))
    (tmp_path / "c").write_bytes(b"PK\x03\x04\xff")
    (tmp_path / "d").write_bytes(b"PK is a name, \xff")
    assert "looks like gzip" in fails(str(tmp_path / "a"))
    assert "looks like UTF-16" in fails(str(tmp_path / "b"))
    assert "looks like a zip file" in fails(str(tmp_path / "c"))
    assert "--errors replace" in fails(str(tmp_path / "d"))


def test_byte_order_mark(tmp_path):
    assert sentences_of(write(tmp_path / "a", "\ufeff" + WIKI))[0][0] == "Salt"


@pytest.mark.parametrize("damage", ["truncated", "corrupt", "not gzip"])
def test_damaged_gzip(tmp_path, damage):
    data = bytearray(gzip.compress(SENTENCES.encode() * 50))
    if damage == "truncated":
        del data[-20:]
    elif damage == "corrupt":
        data[-6] ^= 0xFF  # checksum
    else:
        data[:] = b"plain text"
    (tmp_path / "a.gz").write_bytes(data)
    assert f"{tmp_path / 'a.gz'}: damaged gzip" in fails(str(tmp_path / "a.gz"))


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_file(tmp_path):
    source = str(tmp_path / "a.gz")
    document = SENTENCES.replace("\n\n", "\n").encode() * 50 + b"\n"
    peaks = []
    for copies in (300, 900):
        with gzip.open(source, "wb", compresslevel=1) as file:
            for _ in range(copies):
                file.write(document)
        tracemalloc.start()
        assert sum(1 for _ in read_raw_documents(Corpus([source]))) == copies
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("form", ["sentences", "document", "wikiextractor"])
def test_long_documents_are_parted(tmp_path, monkeypatch, form):
    monkeypatch.setattr(documents_module, "MAX_DOCUMENT", 1000)
    lines = [f"This is sentence number {number}, and it is here.\n" for number in range(100)]
    text = "".join(lines)
    if form == "wikiextractor":
        text = f'<doc id="1">\n{text}</doc>\n'
    source = write(tmp_path / "a", text)
    said = []
    monkeypatch.setattr(
        documents_module.logger, "warning", lambda text, *of: said.append(text % of)
    )
    raws = list(read_raw_documents(Corpus([source], format=form)))
    assert len(raws) > 3
    assert max(len(raw.text) for raw in raws) < 1100
    assert any(f"{source}:" in each for each in said)
    assert [s for raw in raws for s in split_sentences(raw)] == [line.strip() for line in lines]


def test_a_line_without_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(lines_module, "BLOCK", 30)
    text = "word " * 200
    lines = list(read_lines(Path(write(tmp_path / "a", text)), "strict", 100))
    assert max(map(len, lines)) <= 130
    assert "".join(lines).split() == text.split()
    assert max(map(len, read_lines(Path(write(tmp_path / "b", "x" * 999)), "strict", 100))) <= 130


def test_folders_and_patterns_are_read_in_sorted_order(tmp_path):
    for name in ("b/2.txt", "b/10.txt", "a.txt", "c.txt", ".hidden", "b/.git/x"):
        write(tmp_path / name, f"This is {name}.")
    (tmp_path / "b/empty").touch()
    read = [f"This is {name}." for name in ("a.txt", "c.txt", "b/10.txt", "b/2.txt")]
    assert sentences_of(str(tmp_path)) == [[sentence] for sentence in read]
    assert sentences_of(str(tmp_path / "*.txt")) == [[sentence] for sentence in read[:2]]
    assert sentences_of(str(tmp_path / "**/1*.txt"), str(tmp_path / "a.txt")) == [
        [read[2]],
        [read[0]],
    ]


def test_folders_that_are_links_are_read_once(tmp_path):
    write(tmp_path / "elsewhere/2.txt", "This is linked.")
    write(tmp_path / "corpus/1.txt", "This is here.")
    (tmp_path / "corpus/a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus/b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/up").symlink_to(tmp_path / "corpus")
    assert sentences_of(str(tmp_path / "corpus")) == [["This is here."], ["This is linked."]]


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "novels.txt", "Text.")
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    assert "did you mean 'novels.txt'?" in fails("novel.txt")
    assert "did you mean 'python-english'?" in fails("python_english")
    assert "the folder nowhere does not exist" in fails("nowhere/a.txt")
    assert "holds no files" in fails("folder")
    assert "no file matches" in fails("*.gz")
    assert "empty: holds no text" in fails("empty")
    assert "no sources" in fails()
    (tmp_path / "folder/blank").write_text(" \n\n")
    assert "no file in it holds any text" in fails("folder")


def test_missing_sources_are_found_before_reading(tmp_path):
    corpus = Corpus([write(tmp_path / "a", "Text."), str(tmp_path / "missing")])
    with pytest.raises(CorpusError, match="missing"):
        next(read_raw_documents(corpus))


def test_unclosed_and_stray_wikiextractor_text(tmp_path):
    assert "a:1: <doc> without its </doc>" in fails(write(tmp_path / "a", WIKI[:60]))
    twice = WIKI.replace("</doc>\n", "", 1)
    assert "a:1: <doc> without its </doc> before the next one in line 7" in fails(
        write(tmp_path / "a", twice)
    )
    assert "a:13: found 'stray'" in fails(write(tmp_path / "a", WIKI + "stray\n"))
    assert "a:1: found 'Text'" in fails(write(tmp_path / "a", "Text"), format="wikiextractor")


ROWS = [
    {"text": "One is here. Two is there.", "id": 1},
    {"text": "", "id": 2},
    {"text": "Ünïcode, “quoted”.\nNext line.", "id": 3},
]
ROW_DOCUMENTS = [["One is here.", "Two is there."], ["Ünïcode, “quoted”.", "Next line."]]


def write_rows(path: Path, rows: list[dict]) -> str:
    import datasets

    kind = path.name.removesuffix(".gz").rsplit(".", 1)[1]
    if kind == "json":
        return write(path, json.dumps(rows, indent=1))
    if kind == "jsonl":
        return write(path, "\n".join(json.dumps(row) for row in rows))
    table = datasets.Dataset.from_list(rows)
    {"csv": table.to_csv, "parquet": table.to_parquet}[kind](str(path))
    return str(path)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_rows(tmp_path, name):
    source = write_rows(tmp_path / name, ROWS)
    assert sentences_of(source) == ROW_DOCUMENTS
    assert sentences_of(source, format="sentences")[0] == ["One is here. Two is there."]
    message = fails(source, text_column="txet")
    assert "'text', 'id'" in message
    assert "did you mean 'text'?" in message
    number = fails(source, text_column="id")
    assert "column 'id' holds " in number
    assert "'1'" in number
    assert "row 1" in number or re.search(rf"{source}:[12]", number)


def test_json_rows_equal_those_of_datasets(tmp_path):
    import datasets

    source = write_rows(tmp_path / "a.jsonl", ROWS)
    rows = datasets.load_dataset("json", data_files=source, split="train", streaming=True)
    raws = list(read_raw_documents(Corpus([source])))
    assert [raw.text for raw in raws] == [row["text"] for row in rows if row["text"]]


def test_bad_json(tmp_path):
    good = json.dumps(ROWS[0]) + "\n"
    assert "a.jsonl:2: malformed JSON" in fails(write(tmp_path / "a.jsonl", good + '{"text": "x'))
    place = "a.json:3: malformed JSON (Expecting value, column 1)"  # as of json.loads
    assert place in fails(write(tmp_path / "a.json", '[\n{"text": "x"},\n}'))
    assert "a.jsonl:2: found list" in fails(write(tmp_path / "a.jsonl", good + "[1]"))
    assert "nested too deep" in fails(write(tmp_path / "a.jsonl", "[" * 10**5))
    assert "a.jsonl:1: malformed JSON" in fails(write(tmp_path / "a.jsonl", "9" * 10**4))
    lone = write(tmp_path / "a.jsonl", '{"text": "a \\ud800 b"}')
    assert "lone surrogate" in fails(lone)
    assert sentences_of(lone, errors="replace") == [["a ? b"]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_parted_by_other_signs(tmp_path, delimiter):
    lines = ["id", "text"], ["1", "One sentence."], ["2", f'"Two{delimiter} parts."']
    path = write(tmp_path / "a.csv", "".join(delimiter.join(line) + "\n" for line in lines))
    found = [sentence for document in sentences_of(path) for sentence in document]
    assert found == ["One sentence.", f"Two{delimiter} parts."]


def test_bad_csv_and_parquet(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"id,text\n1,caf\xe9\n")
    assert "a.csv:2: not UTF-8 at byte offset 13" in fails(str(tmp_path / "a.csv"))
    assert sentences_of(str(tmp_path / "a.csv"), errors="replace") == [["caf\ufffd"]]
    assert "b.csv:2: malformed CSV" in fails(write(tmp_path / "b.csv", 'id,text\n1,"a\n'))
    assert "holds no text" in fails(write(tmp_path / "c.csv", "\n"))
    assert "not a readable Parquet" in fails(write(tmp_path / "a.parquet", "PAR1"))


def test_hub_data_sets(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "set"
    folder.mkdir()
    write_rows(folder / "train.csv", ROWS)
    write_rows(folder / "test.csv", ROWS[:1])
    assert sentences_of(f"hf:{folder}") == ROW_DOCUMENTS
    assert sentences_of(f"hf:{folder}::test") == ROW_DOCUMENTS[:1]
    prints = [Corpus([f"hf:{folder}{split}"]).fingerprint for split in ("", "", "::test")]
    assert prints[0] == prints[1] != prints[2]
    assert "Unknown split" in fails(f"hf:{folder}::dev")
    assert "cannot be loaded" in fails(f"hf:{tmp_path / 'missing'}")
    assert "expected hf:NAME" in fails("hf:a:b:c:d")


def test_fingerprint_follows_content_and_settings(tmp_path):
    first, second = write(tmp_path / "a", SENTENCES), write(tmp_path / "b", WIKI)
    moved = write(tmp_path / "elsewhere/c", SENTENCES)
    base = Corpus([first, second]).fingerprint
    assert base == Corpus([moved, second]).fingerprint
    different = [
        Corpus([second, first]),
        Corpus([first]),
        Corpus([first, second], format="document"),
        Corpus([first, second], text_column="body"),
        Corpus([first, second], errors="replace"),
        Corpus([first, second], language="de"),
    ]
    assert len({base, *(corpus.fingerprint for corpus in different)}) == 1 + len(different)
    write(tmp_path / "a", SENTENCES + "More.")
    assert base != Corpus([first, second]).fingerprint


@pytest.mark.parametrize("language", ["German", "de-DE", "DE", "d", ""])
def test_a_language_is_a_code(language):
    with pytest.raises(ConfigError, match=f"language: found '{language}', expected an ISO 639"):
        Corpus(["a.txt"], language=language)


def test_settings_become_arguments():
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_argument("--corpus", type=Corpus)
    options = parser.parse_args(["--corpus.sources", '["a", "b"]', "--corpus.errors", "replace"])
    assert parser.instantiate(options).corpus == Corpus(["a", "b"], errors="replace")
    assert "column (JSON key) of rows that holds the text" in " ".join(parser.format_help().split())
