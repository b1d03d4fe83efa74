import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertlab.data.examples.values import looks_printed
from tests.data.examples.labelled_files import TAGGING, fails, read, streamed, values, write

SENTENCES = (
    "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP I-PER\n"
    "-DOCSTART- -X- O O\n\n# NN I-NP O\n"
)
ROWS = [
    {"words": ["EU", "rejects"], "tags": ["I-ORG", "O"]},
    {"words": ["Peter"], "tags": ["I-PER"]},
    {"words": ["#"], "tags": ["O"]},
]
relaxed = settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# what programs print for an empty cell or a list is refused as a tag
EMPTY = {"-DOCSTART-", "nan", "NaN", "null", "NULL", "<NA>", "\\N"}
# any space but the two that part columns may be in a word
token = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\t \ufeff"), min_size=1
).filter(lambda text: text not in EMPTY and not looks_printed(text))


@pytest.mark.parametrize("name", ["a.conll", "a.conll.gz", "a.bio"])
def test_sentences(tmp_path, name):
    path = write(tmp_path / name, SENTENCES)
    found = read(path, TAGGING)
    assert [dict(row.values) for row in found.rows] == ROWS
    assert [row.where for row in found.rows] == [f"{path}:{line}" for line in (3, 7, 10)]
    assert found.skipped == {"-DOCSTART- lines": 2}


def test_columns_by_number(tmp_path):
    path = write(tmp_path / "a.conll", SENTENCES)
    rows = values(path, TAGGING, columns={"tags": 1})
    assert rows[0] == {"words": ["EU", "rejects"], "tags": ["NNP", "VBZ"]}
    rows = values(path, TAGGING, columns={"words": "-1", "tags": "0"})
    assert rows[0] == {"words": ["I-ORG", "O"], "tags": ["EU", "rejects"]}


@relaxed
@given(
    sentences=st.lists(
        st.lists(st.tuples(token, token), min_size=1, max_size=5), min_size=1, max_size=5
    ),
    gap=st.sampled_from([" ", "\t", " \t "]),
    end=st.sampled_from(["\n", "\r\n"]),
    between=st.sampled_from(["", "\t", " ", "\ufeff"]),
)
def test_round_trip(tmp_path, sentences, gap, end, between):
    lines = [line for words in sentences for line in (*(f"{a}{gap}{b}" for a, b in words), between)]
    rows = values(write(tmp_path / "a.conll", end.join(lines)), TAGGING)
    assert rows == [
        {"words": [a for a, _ in words], "tags": [b for _, b in words]} for words in sentences
    ]


def test_words_alone_are_new_text(tmp_path):
    path = write(tmp_path / "a.conll", "One\nword\n\nTwo")
    assert streamed(path, TAGGING) == [{"words": ["One", "word"]}, {"words": ["Two"]}]
    fails(read, path, TAGGING, matches="a.conll: no column '-1', which 'tags' comes from")


def test_truth_of_new_text_is_kept(tmp_path):
    assert streamed(write(tmp_path / "a.conll", SENTENCES), TAGGING) == ROWS


def test_ragged_rows(tmp_path):
    path = write(tmp_path / "a.conll", "EU ORG\nrejects O\n\nthe\n")
    fails(read, path, TAGGING, matches=["a.conll:4: found 1 column ('the'), expected 2"])
    path = write(tmp_path / "b.conll", "# id = 17\nEU B-ORG\nrejects O\n")
    fails(read, path, TAGGING, matches=["b.conll:2: found 2", "begin with # are no comments"])
    path = write(tmp_path / "b.conll", "EU ORG\nNew York LOC\n")
    fails(read, path, TAGGING, matches=["b.conll:2: found 3 columns", "expected 2"])
    path = write(tmp_path / "c.conll", "-DOCSTART- O\n\n")
    fails(read, path, TAGGING, matches="c.conll: holds no rows")
    path = write(tmp_path / "d.conll", SENTENCES)
    fails(read, path, TAGGING, columns={"tags": 4}, matches="no column '4', which 'tags'")
