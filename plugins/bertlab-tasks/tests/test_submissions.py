import json

import pytest

from bertlab.api.examples import Example
from bertlab.api.format import NamedFormat
from bertlab.errors import OutputError
from bertlab.plugins.index import installed, load_class
from bertlab.training.predictions import PredictionWriter, open_sink
from tests.data.examples.labelled_files import TAGGING, fails, read, write

ROW = Example({}, "test.tsv:7")


def open_submission(form, path):
    return open_sink(str(path), form, None)


def submit(form, path, *pairs):
    submission = open_submission(form, path)
    with PredictionWriter().into(submission, None, None):
        for row, prediction in pairs:
            submission.write(row, prediction)
    return submission.path.read_text()


# file names and values of the sample submission that GLUE's server gives
GLUE = [
    ("cola", "CoLA.tsv", "acceptable", "1"),
    ("sst2", "SST-2.tsv", "negative", "0"),
    ("mrpc", "MRPC.tsv", "equivalent", "1"),
    ("qqp", "QQP.tsv", "not_duplicate", "0"),
    ("mnli", "MNLI-m.tsv", "neutral", "neutral"),
    ("mnli_mismatched", "MNLI-mm.tsv", "contradiction", "contradiction"),
    ("ax", "AX.tsv", "entailment", "entailment"),
    ("qnli", "QNLI.tsv", "not_entailment", "not_entailment"),
    ("rte", "RTE.tsv", "entailment", "entailment"),
    ("wnli", "WNLI.tsv", "entailment", "1"),
]


@pytest.mark.parametrize(("form", "name", "label", "written"), GLUE)
def test_glue(tmp_path, form, name, label, written):
    number = load_class("format", form, NamedFormat).label_names.index(label)
    # a model that was trained on bare numbers submits the same
    pairs = [(ROW, {"label": label, "scores": {}}), (ROW, {"label": str(number)})]
    text = submit(form, f"{tmp_path}/new/", *pairs)
    assert text == f"index\tprediction\n0\t{written}\n1\t{written}\n"
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_scores_are_kept_in_their_range(tmp_path):
    pairs = [(ROW, {"score": score}) for score in (-0.5, 3.25, 5.5)]
    text = submit("stsb", tmp_path, *pairs)
    assert text.splitlines()[1:] == ["0\t0.000000", "1\t3.250000", "2\t5.000000"]
    assert (tmp_path / "STS-B.tsv").is_file()


def test_squad(tmp_path):
    rows = [Example({"id": name}, name) for name in ('q"1', "q2", "q3")]
    answers = [
        {"answer": 'a "quoted" 🏛\n', "null_odds": -2.5},
        {"answer": "", "null_odds": 3.0},
        {"answer": None, "null_odds": 4.0},
    ]
    path = tmp_path / "dev.json"
    assert json.loads(submit("squad", path, *zip(rows, answers, strict=True))) == {
        'q"1': 'a "quoted" 🏛\n',
        "q2": "",
        "q3": "",
    }
    odds = json.loads((tmp_path / "dev.null_odds.json").read_text())
    assert odds == {'q"1': -2.5, "q2": 3.0, "q3": 4.0}
    assert json.loads(submit("squad", tmp_path / "b.json", (rows[0], {"answer": "x"})))
    assert not (tmp_path / "b.null_odds.json").exists()
    assert json.loads(submit("squad", tmp_path / "c.json")) == {}


def test_conll_reads_back(tmp_path):
    rows = [
        Example({"words": ["Ann", "#"], "tags": ["B-PER", "O"]}, "a:1"),
        Example({"words": ["It"], "tags": ["O"]}, "a:4"),
    ]
    predictions = [{"tags": ["O", "B-PER"]}, {"tags": ["O"]}]
    text = submit("conll", tmp_path / "a.conll", *zip(rows, predictions, strict=True))
    assert text == "Ann B-PER O\n# O B-PER\n\nIt O O\n\n"
    assert [row.values["tags"] for row in read(tmp_path / "a.conll", TAGGING).rows] == [
        prediction["tags"] for prediction in predictions
    ]
    text = submit(
        "conll", tmp_path / "b.conll", (Example({"words": ["It"]}, "b:1"), {"tags": ["O"]})
    )
    assert text == "It O\n\n"


@pytest.mark.parametrize("form", ["swag", "codah"])
def test_choices(tmp_path, form):
    pairs = [(ROW, {"label": 2, "choice": "x"}), (ROW, {"label": 0})]
    assert submit(form, tmp_path / "a.csv", *pairs) == "pred\n2\n0\n"


BAD = [
    (
        "cola",
        ROW,
        {"label": "acceptible"},
        "test.tsv:7: predicted 'acceptible'; did you mean 'acce",
    ),
    ("cola", ROW, {"score": 1.0}, "test.tsv:7: the prediction has score, but this form"),
    ("stsb", ROW, {"label": "1"}, "needs 'score'"),
    ("squad", ROW, {"answer": "a"}, "test.tsv:7: found no id"),
    (
        "squad",
        Example({"id": "first"}, "b"),
        {"answer": "a"},
        "b: found id 'first' for the second time",
    ),
    ("conll", Example({"words": ["a", "b"]}, "c"), {"tags": ["O"]}, "c: as many tags as words"),
    ("conll", Example({"words": ["a b"]}, "c"), {"tags": ["O"]}, "c: found 'a b', but"),
    ("conll", Example({"words": [""]}, "c"), {"tags": ["O"]}, "c: found '', but"),
]
FIRST = {
    "squad": (Example({"id": "first"}, "a"), {"answer": "a", "null_odds": 0.0}),
    "conll": (Example({"words": ["a"]}, "a"), {"tags": ["O"]}),
    "cola": (ROW, {"label": "acceptable"}),
    "stsb": (ROW, {"score": 1.0}),
}


@pytest.mark.parametrize(("form", "row", "prediction", "message"), BAD)
def test_nothing_half_written(tmp_path, form, row, prediction, message):
    path = tmp_path / "out"
    path.write_text("earlier")
    fails(submit, form, path, FIRST[form], (row, prediction), matches=message)
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert path.read_text() == "earlier"


def test_no_file_before_the_end(tmp_path):
    submission = open_submission("squad", tmp_path / "a.json")
    submission.write(*FIRST["squad"])
    assert not (tmp_path / "a.json").exists()
    submission.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.null_odds.json"]


def test_where_to_write(tmp_path):
    fails(open_submission, "colla", tmp_path, matches=["found 'colla'; did you mean 'cola'?"])
    fails(open_submission, "sick", tmp_path, matches="sick has no form of submission; expected")
    with pytest.raises(OutputError, match="is a folder, expected the name of a file"):
        open_submission("squad", tmp_path)
    blocked = write(tmp_path / "file", "")
    with pytest.raises(OutputError, match=r"a\.tsv: cannot be written"):
        open_submission("cola", f"{blocked}/a.tsv")


def test_forms():
    forms = {name: load_class("format", name, NamedFormat) for name in installed("format")}
    assert {name for name, form in forms.items() if form.submission} == {
        *("stsb", "squad", "conll", "swag", "codah"),
        *(name for name, *_ in GLUE),
    }
    assert all(form.__doc__ for form in forms.values())
