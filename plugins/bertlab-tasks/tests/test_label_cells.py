"""Several labels of a row, as files write them."""

import json

import pytest

from bertlab.api import DataError, Labels
from bertlab.data.examples.source import read_rows
from bertlab.data.rows.tables import RowReading
from bertlab.extend import LabelledData, UnreadableRow
from bertlab_tasks.multi_label import MultiLabel


def write(path, content):
    path.write_text(content)
    return path


def read(path, columns=(), names=None, **settings):
    reading = RowReading(**settings)
    return read_rows(str(path), None, dict(columns), "auto", MultiLabel.columns, names, reading)


def labels(path, **options):
    return [row.values["labels"] for row in read(path, **options).rows]


def refused(path, *words, **options):
    with pytest.raises(DataError) as error:
        read(path, **options)
    for word in words:
        assert word in str(error.value)


def labelled(path, cells):
    return write(path, "text,labels\n" + "".join(f"a text {n},{c}\n" for n, c in enumerate(cells)))


PRINTED = [
    ["\"['a', 'b']\"", "[]", "['b']"],
    ['"[""a"", ""b""]"', "[]", '"[""b""]"'],
    ["['a' 'b']", "[]", "['b']"],
    ["\"{'a', 'b'}\"", "[]", "{'b'}"],
    ["\"{'a', 'b'}\"", "set()", "{'b'}"],
    ["\"('a', 'b')\"", "()", "\"('b',)\""],
    ["\"array(['a', 'b'], dtype=object)\"", '"array([], dtype=object)"', "array(['b'])"],
]


@pytest.mark.parametrize("cells", PRINTED)
def test_lists_that_were_printed_into_cells(tmp_path, cells):
    assert labels(labelled(tmp_path / "a.csv", cells)) == [["a", "b"], [], ["b"]]


def test_some_printed_lists_are_refused(tmp_path):
    refused(labelled(tmp_path / "a.csv", ["['a']", "b"]), "printed list")
    refused(labelled(tmp_path / "b.csv", ["[a b]", "[c]"]), "is none")


CELLS = [
    (["Travel", "Work; home", '"Travel|Food, drink"'], ["Travel"], ["Work; home"]),
    (["Travel", '"Work, home"', '"Travel;Work, home"'], ["Travel"], ["Work, home"]),
    (['"x,y"', "x", "y"], ["x", "y"], ["x"]),
]


@pytest.mark.parametrize(("cells", "first", "second"), CELLS)
def test_one_separator_for_a_file(tmp_path, cells, first, second):
    assert labels(labelled(tmp_path / "a.csv", cells))[:2] == [first, second]


def test_the_separator_can_be_said(tmp_path):
    path = labelled(tmp_path / "a.csv", ["a/b", "a"])
    assert labels(path) == [["a/b"], ["a"]]
    assert labels(path, label_separator="/") == [["a", "b"], ["a"]]


@pytest.mark.parametrize("mark", ["/", "+", " & ", "、", " "])
def test_names_that_are_several_others(tmp_path, mark):
    cells = [f"drama{mark}comedy", "drama", "comedy", "sci-fi"]
    path = labelled(tmp_path / "a.csv", cells)
    refused(path, f"'drama{mark}comedy'", "2 labels", "data.label_separator")
    assert labels(path, label_separator="|") == [[cell] for cell in cells]
    # no name of its own but in one place: it is a name
    assert labels(labelled(tmp_path / "b.csv", cells[:2])) == [[cells[0]], ["drama"]]


@pytest.mark.parametrize(
    ("no", "yes"), [("0", "1"), ("0.0", "1.0"), ("False", "True"), ("no", "yes"), ("N", "Y")]
)
def test_a_column_for_each_label(tmp_path, no, yes):
    rows = "".join(f"a text {n},{yes},{no},{no if n else yes}\n" for n in range(3))
    path = write(tmp_path / "a.csv", f"text,x,y,z\n{rows}")
    columns = {"labels": ["x", "y", "z"]}
    found = read(path, columns)
    assert found.label_names == ("x", "y", "z")
    assert [row.values["labels"] for row in found.rows] == [["x", "z"], ["x"], ["x"]]
    path = write(tmp_path / "b.csv", rows)
    places = {"text": "0", "labels": ["1", "2", "3"]}
    refused(path, "without names", "data.label_names", columns=places)
    assert labels(path, columns=places, names=["x", "y", "z"])[1] == ["x"]


def test_columns_that_are_not_all_of_0_and_1(tmp_path):
    path = write(tmp_path / "a.csv", "text,x,y\na,1,0\nb,0.4,1\n")
    refused(path, "'0.4' beside 0 and 1", columns={"labels": ["x", "y"]})
    path = write(tmp_path / "b.csv", "text,x,y\na,one,two\nb,two,one\n")
    assert labels(path, columns={"labels": ["x", "y"]})[0] == ["one", "two"]


@pytest.mark.parametrize("cells", [("", "x"), ("0.1", "0.9"), ("-", "ja")])
def test_columns_that_hold_neither_0_and_1_nor_names(tmp_path, cells):
    no, yes = cells
    path = write(tmp_path / "a.csv", f"text,a,b,c\none,{yes},{no},{no}\ntwo,{no},{yes},{no}\n")
    refused(path, "3 columns hold", "0 or 1", columns={"labels": ["a", "b", "c"]})


def test_columns_of_names_may_have_empty_cells(tmp_path):
    path = write(tmp_path / "a.csv", "text,first,second\none,x,y\ntwo,,z\nthree,,\n")
    found = labels(path, columns={"labels": ["first", "second"]})
    assert found == [["x", "y"], ["z"], []]


@pytest.mark.parametrize("form", [[1, 0, 1], "1 0 1", "[1, 0, 1]", "1,0,1"])
def test_lists_of_0_and_1_need_names(tmp_path, form):
    rows = [{"text": f"a text {n}", "labels": form} for n in range(3)]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    refused(path, "have no names", "data.label_names")
    assert labels(path, names=["x", "y", "z"]) == [["x", "z"]] * 3


def connected(**settings):
    data = LabelledData(**settings)
    data.connect(object(), {"multi_label": MultiLabel()})
    return data


TRAINED = ["Travel", '"Food, drink|Travel"', '"Food, drink|drink"', "drink|Food"]


def test_validation_rows_are_parted_as_those_of_training(tmp_path):
    train = labelled(tmp_path / "a.csv", TRAINED)
    validation = labelled(tmp_path / "b.csv", ['"Food, drink"', "Travel"])
    data = connected(train=str(train), validation=str(validation))
    data.prepare("fit")
    assert [row.values["labels"] for row in data.rows[""].rows] == [["Food, drink"], ["Travel"]]


def test_test_rows_are_parted_as_the_checkpoint_has_the_labels(tmp_path):
    path = labelled(tmp_path / "b.csv", ['"Food, drink"', "Travel"])
    data = connected(test=str(path))
    data.labels = Labels(("Food", "Food, drink", "Travel", "drink"), (1, 2, 2, 2))
    data.prepare("test")
    assert [row.values["labels"] for row in data.rows[""].rows] == [["Food, drink"], ["Travel"]]


def truth_of_new_text(path, names, **settings):
    """Return the truth beside the texts that are predicted on, by a model with these labels."""
    data = connected(input=str(path), **settings)
    data.head.labels = Labels(names, (1,) * len(names))
    data.predict_dataloader()
    rows = list(data.input_rows.source)
    assert not any(isinstance(row, UnreadableRow) for row in rows)
    return [row.values.get("labels") for row in rows]


def test_new_text_has_its_labels_read_as_the_training_data_has_them(tmp_path, capsys):
    hot = labelled(tmp_path / "hot.csv", ["1 0 1", "0 0 0"])
    names = ("x", "y", "z")
    assert truth_of_new_text(hot, names, label_names=[*names]) == [["x", "z"], []]
    slashes = labelled(tmp_path / "slash.csv", ["x/y", "z"])
    assert truth_of_new_text(slashes, names, label_separator="/") == [["x", "y"], ["z"]]
    several = write(tmp_path / "several.csv", "text,a,b\none,x,\ntwo,y,z\nthree,,\n")
    columns = {"labels": ["a", "b"]}
    assert truth_of_new_text(several, names, columns=columns) == [["x"], ["y", "z"], None]
    commas = labelled(tmp_path / "commas.csv", ['"x, y"', '"x, y|z"'])
    assert truth_of_new_text(commas, ("x, y", "z")) == [["x, y"], ["x, y", "z"]]
    assert capsys.readouterr().err == ""


def test_ids_alone_are_no_lists_of_0_and_1(tmp_path):
    path = labelled(tmp_path / "a.csv", ["1|2", "0|1"])
    assert truth_of_new_text(path, ("0", "1", "2")) == [["1", "2"], ["0", "1"]]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ("0,1,1 1,0,0 0,0,1", ("0", "1", "2")),
        ("no,yes,yes yes,no,no no,no,yes", ("no", "x", "yes")),
    ],
)
def test_labels_called_0_and_1_leave_columns_of_0_and_1_as_they_are(tmp_path, cells, names):
    lines = "".join(f"a text {n},{row}\n" for n, row in enumerate(cells.split()))
    expected = [[*names[1:]], [names[0]], [names[2]]]
    file = str(write(tmp_path / "a.csv", f"text,a,b,c\n{lines}"))
    settings = {"columns": {"labels": ["a", "b", "c"]}, "label_names": [*names]}
    data = connected(train=file, validation=file, **settings)
    data.prepare("fit")
    for split in data.rows.values():
        assert [row.values["labels"] for row in split.rows] == expected
    assert truth_of_new_text(file, names, **settings) == expected
    # the columns' own names are the labels
    named = str(write(tmp_path / "b.csv", f"text,{','.join(names[:2])},x2\n{lines}"))
    data = connected(train=named, validation=named, columns={"labels": [*names[:2], "x2"]})
    data.prepare("fit")
    assert data.rows[""].rows[0].values["labels"] == [names[1], "x2"]


def test_names_of_columns_stay_where_label_names_have_another_order(tmp_path):
    file = str(write(tmp_path / "a.csv", "text,drama,short,funny\none,1,0,0\ntwo,0,1,1\n"))
    columns = {"labels": ["drama", "short", "funny"]}
    data = connected(train=file, validation=file, columns=columns,
                     label_names=["funny", "drama", "short"])  # fmt: skip
    data.prepare("fit")
    found = [sorted(row.values["labels"]) for row in data.rows["train"].rows]
    assert found == [["drama"], ["funny", "short"]]
    other = connected(train=file, columns=columns, label_names=["funny", "drama", "long"])
    with pytest.raises(DataError, match=r"columns drama, short, funny hold 0 and 1"):
        other.prepare("fit")


def test_lists_of_0_and_1_with_a_name_too_many_are_no_ids(tmp_path):
    rows = [{"text": f"a text {n}", "labels": each} for n, each in enumerate([[1, 1], [0, 0]])]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    data = connected(train=str(path), validation=str(path), label_names=["a", "b", "c"])
    with pytest.raises(DataError, match=r"lists of 2 times 0 or 1 and data.label_names has 3"):
        data.prepare("fit")


def test_columns_of_names_are_read_as_such_where_names_are_given(tmp_path):
    train = write(tmp_path / "a.csv", "text,a,b\none,x,y\ntwo,z,\n")
    validation = write(tmp_path / "b.csv", "text,a,b\none,x,\ntwo,x,\n")
    settings = {"columns": {"labels": ["a", "b"]}, "label_names": ["x", "y", "z"]}
    data = connected(train=str(train), validation=str(validation), **settings)
    data.prepare("fit")
    assert [row.values["labels"] for row in data.rows[""].rows] == [["x"], ["x"]]


def test_a_truth_that_cannot_be_read_costs_no_prediction(tmp_path, capsys):
    path = labelled(tmp_path / "a.csv", ["x", "[a b]", "[c]"])
    assert truth_of_new_text(path, ("x", "y")) == [["x"], None, None]
    told = capsys.readouterr().err
    assert told.count("bertlab: warning:") == 1
    assert "a.csv:3: column 'labels': found '[a b]'" in told
    with pytest.raises(DataError, match="which looks like a printed list"):
        truth_of_new_text(path, ("x", "y"), bad_rows="refuse")
