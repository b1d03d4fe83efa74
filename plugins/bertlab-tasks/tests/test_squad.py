import copy
import json

import pytest

from tests.data.examples.labelled_files import SPAN, fails, read, streamed, values, write

CONTEXT = "Rome is old. 🏛 Paris is not."
DOCUMENT = {
    "version": "v2.0",
    "data": [
        {"title": "Empty", "paragraphs": []},
        {
            "title": "Cities",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "q1",
                            "question": "What is old?",
                            "answers": [
                                {"text": "Rome", "answer_start": 0},
                                {"text": "Paris", "answer_start": 15},
                            ],
                            "is_impossible": False,
                        },
                        {
                            "id": "q2",
                            "question": "What is green?",
                            "answers": [],
                            "plausible_answers": [{"text": "Paris", "answer_start": 15}],
                            "is_impossible": True,
                        },
                        {"id": "q3", "question": "What is new?"},
                    ],
                }
            ],
        },
    ],
}
QUESTION = "data[1].paragraphs[0].qas[0]"


def changed(change):
    document = copy.deepcopy(DOCUMENT)
    paragraph = document["data"][1]["paragraphs"][0]
    change(document, paragraph, paragraph["qas"][0])
    return json.dumps(document)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("form", ["auto", "squad"])
def test_questions(tmp_path, indent, form):
    path = write(tmp_path / "dev.json", json.dumps(DOCUMENT, indent=indent))
    rows = read(path, SPAN, form=form).rows
    assert [row.values["id"] for row in rows] == ["q1", "q2", "q3"]
    assert {row.values["context"] for row in rows} == {CONTEXT}
    assert rows[0].values["answers"] == {"text": ["Rome", "Paris"], "answer_start": [0, 15]}
    assert rows[1].values["answers"] == {"text": [], "answer_start": []}
    assert "answers" not in rows[2].values
    assert rows[0].where == f"{path}:{QUESTION}"


def test_new_questions_need_no_answers(tmp_path):
    path = write(tmp_path / "new.json", changed(lambda *parts: parts[2].pop("answers")))
    assert "answers" not in streamed(path, SPAN)[0]


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["Rome"], "answer_start": [0]},
        [{"text": "Rome", "answer_start": 0}],
    ],
)
def test_rows_as_on_the_hub(tmp_path, answers):
    row = {"question": "What is old?", "context": CONTEXT, "answers": answers}
    expected = {**row, "answers": {"text": ["Rome"], "answer_start": [0]}}
    for name, text in [("a.jsonl", json.dumps(row)), ("a.json", json.dumps([row]))]:
        assert values(write(tmp_path / name, text), SPAN) == [expected]
    # an object a line in .json is told from SQuAD's one object
    assert values(write(tmp_path / "b.json", json.dumps(row)), SPAN) == [expected]


BAD = [
    (lambda document, *_: document.pop("data"), "dev.json: not SQuAD's JSON"),
    (lambda document, *_: document.update(data={}), "data: found mapping '{}', expected a list"),
    (
        lambda document, *_: document["data"].append(3),
        "data[2]: found number '3', expected an object",
    ),
    (lambda document, *_: document.update(data=[]), "dev.json: holds no rows"),
    (
        lambda _, paragraph, __: paragraph.pop("context"),
        "data[1].paragraphs[0].context: is missing, expected a text; there are 'qas'",
    ),
    (lambda *parts: parts[2].pop("id"), f"{QUESTION}.id: is missing"),
    (lambda *parts: parts[2].update(question=None), f"{QUESTION}.question: found nothing"),
    (lambda *parts: parts[2].update(answers="Rome"), f"{QUESTION}.answers: found text 'Rome'"),
    (
        lambda *parts: parts[2]["answers"][1].update(answer_start="0"),
        f"{QUESTION}.answers[1].answer_start: found text '0', expected a whole number",
    ),
    (
        lambda *parts: parts[2]["answers"][0].update(answer_start=True),
        f"{QUESTION}.answers[0].answer_start: found truth value 'True', expected a whole number",
    ),
    (lambda *parts: parts[2].update(is_impossible=True), f"{QUESTION}.is_impossible: found true"),
    (
        lambda *parts: parts[2].update(is_impossible="no"),
        "is_impossible: found text 'no', expected",
    ),
    (lambda *parts: parts[2].update(question=" "), f"{QUESTION}: column 'question': is empty"),
    (
        lambda *parts: parts[2]["answers"][0].update(text=""),
        f"{QUESTION}: column 'answers'.text[0]: is empty",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_damaged_structure(tmp_path, change, message):
    fails(read, write(tmp_path / "dev.json", changed(change)), SPAN, form="squad", matches=message)


def test_damaged_json(tmp_path):
    text = json.dumps(DOCUMENT, indent=1)[:300]
    path = write(tmp_path / "dev.json", text)
    fails(read, path, SPAN, matches=f"dev.json:{len(text.splitlines())}: malformed JSON")


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["a"], "answer_start": []},
        {"text": ["a"], "answer_start": ["0"]},
        {"text": "a", "answer_start": 0},
        ["a", 1],
        7,
    ],
)
def test_bad_answers_of_rows(tmp_path, answers):
    row = {"question": "What?", "context": CONTEXT, "answers": answers}
    path = write(tmp_path / "a.jsonl", json.dumps(row))
    fails(read, path, SPAN, matches=["a.jsonl:1: column 'answers': found", "of the same length"])


def test_answers_of_a_table_are_texts(tmp_path):
    content = "question,context,answers\nWhat?,It is. It is,is\nWho?,It is,\n"
    path = write(tmp_path / "a.csv", content)
    found = [row["answers"] for row in values(path, SPAN)]
    assert found == [{"text": ["is"], "answer_start": [None]}, {"text": [], "answer_start": []}]
    # of new text an empty cell says nothing
    assert ["answers" in row for row in streamed(path, SPAN)] == [True, False]


@pytest.mark.parametrize("text", ["0 ", "null", '"data"', "[1]"])
def test_json_that_is_no_object_is_refused(text, tmp_path):
    path = write(tmp_path / "file.json", text)
    fails(read, path, SPAN, matches=["file.json"])
