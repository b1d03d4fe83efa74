"""The official files of benchmarks, read by the names of their formats."""

import datasets
import pytest

from bertlab.errors import ConfigError
from tests.data.examples.labelled_files import (
    CHOICE,
    PAIR,
    SINGLE,
    fails,
    read,
    streamed,
    values,
    write,
)


@pytest.fixture(autouse=True)
def _no_progress_bars():
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def test_two_validation_sets(tmp_path):
    header = "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
    for name in ("matched", "mismatched"):
        write(tmp_path / f"dev_{name}.tsv", f"{header}0\t{name}\tB.\tneutral\tneutral\n")
        rows = values(tmp_path, PAIR, split=f"validation_{name}", form="mnli")
        assert rows == [{"text_a": name, "text_b": "B.", "label": "neutral"}]


# the official files' own headers and forms, with the ids that nyu-mll/glue gives these rows
OFFICIAL = [
    ("cola", SINGLE, 'gj04\t0\t*\tThey drank the pub.\nc\t1\t\tHe "ran\n', [0, 1]),
    ("sst2", SINGLE, "sentence\tlabel\ndull \t0\nbright \t1\n", [0, 1]),
    (
        "mrpc",
        PAIR,
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\tA "b\tC"\n0\t2\t3\tA\tD\n',
        [1, 0],
    ),
    (
        "qqp",
        PAIR,
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA\tB\t0\n"
        "1\t2\t3\tcut\n1\t2\t3\t\tB\t1\n1\t2\t3\tA\tB\t1\n",
        [0, 1],
    ),
    (
        "mnli",
        PAIR,
        "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label\n0\t1\tA\tB\tneutral\tneutral\n"
        "0\t1\tA\tB\tneutral\t-\n0\t1\tA\tB\tneutral\tcontradiction\n0\t1\tA\tB\tx\tentailment\n",
        [1, 2, 0],
    ),
    (
        "snli",
        PAIR,
        "gold_label\tsentence1\tsentence2\tlabel1\nneutral\tA\tB\tneutral\n-\tA\tB\tneutral\n",
        [1],
    ),
    (
        "qnli",
        PAIR,
        "index\tquestion\tsentence\tlabel\n0\tA?\tB\tentailment\n1\tA?\tB\tnot_entailment\n",
        [0, 1],
    ),
    (
        "rte",
        PAIR,
        "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tnot_entailment\n1\tA\tB\tentailment\n",
        [1, 0],
    ),
    ("wnli", PAIR, "index\tsentence1\tsentence2\tlabel\n0\tA\tB\t0\n1\tA\tB\t1\n", [0, 1]),
    (
        "sick",
        PAIR,
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        "1\tA\tB\t4.5\tNEUTRAL\n2\tA\tB\t3.6\tCONTRADICTION\n",
        [1, 2],
    ),
]


@pytest.mark.parametrize(("form", "wanted", "text", "ids"), OFFICIAL, ids=[o[0] for o in OFFICIAL])
def test_official_files(tmp_path, form, wanted, text, ids):
    write(tmp_path / "train.tsv", text)
    found = read(tmp_path, wanted, split="train", form=form)
    assert [found.label_names.index(row.values["label"]) for row in found.rows] == ids
    assert bool(found.skipped) == (form in ("qqp", "mnli", "snli"))


def test_counts_of_what_is_left_out(tmp_path):
    texts = {form: text for form, _, text, _ in OFFICIAL}
    qqp = read(write(tmp_path / "a.tsv", texts["qqp"]), PAIR, form="qqp").skipped
    assert qqp == {"another number of columns than the header": 1, "an empty text": 1}
    snli = write(tmp_path / "b.tsv", texts["snli"])
    assert read(snli, PAIR, form="snli").skipped == {"no gold label": 1}
    # nothing is left out of what is to be predicted
    assert streamed(snli, PAIR, form="snli")[1] == {"text_a": "A", "text_b": "B"}


def test_official_test_files_have_no_labels(tmp_path):
    cola = write(tmp_path / "test.tsv", "index\tsentence\n0\tHe ran.\n")
    assert streamed(cola, form="cola") == [{"text": "He ran."}]
    fails(read, cola, form="cola", matches="no column 'label'; columns there: 'index', 'sentence'")
    mrpc = write(tmp_path / "m.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tA\tB\n")
    assert streamed(mrpc, PAIR, form="mrpc") == [{"text_a": "A", "text_b": "B"}]


def test_scores_stay_as_they_are(tmp_path):
    header = (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    )
    path = write(tmp_path / "a.tsv", f"{header}\n0\tg\tf\ty\t1\ts\ts\tA\tB\t3.800\n")
    found = read(path, PAIR, form="stsb")
    assert found.label_names is None
    assert found.rows[0].values == {"text_a": "A", "text_b": "B", "label": "3.800"}


def test_multiple_choice_files(tmp_path):
    swag = write(
        tmp_path / "val.csv",
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,"
        'label\n0,v,1,"A. He",A.,He,gold,"ran, fast",sat,lay,ate,2\n',
    )
    expected = {"context": "A.", "stem": "He", "choices": ["ran, fast", "sat", "lay", "ate"]}
    assert values(tmp_path, CHOICE, split="validation", form="swag") == [expected | {"label": "2"}]
    assert streamed(swag, CHOICE, form="swag") == [expected | {"label": "2"}]
    codah = write(tmp_path / "train.tsv", '\tA "man. He\truns\tsits\tlies\teats\t0\n')
    expected = {"context": 'A "man. He', "choices": ["runs", "sits", "lies", "eats"], "label": "0"}
    assert values(codah, CHOICE, form="codah") == [expected]


@pytest.mark.parametrize(
    ("form", "split", "name"),
    [
        ("mrpc", "train", "msr_paraphrase_train.txt"),
        ("sick", "dev", "SICK_trial.txt"),
        ("snli", "dev", "snli_1.0_dev.txt"),
        ("cola", "validation", "in_domain_dev.tsv"),
    ],
)
def test_official_names_in_a_folder(tmp_path, form, split, name):
    write(tmp_path / "readme.txt", "")
    path = write(tmp_path / name, "")
    wanted = SINGLE if form == "cola" else PAIR
    fails(read, tmp_path, wanted, split=split, form=form, matches=path)


def test_codah_on_the_hub(tmp_path):
    features = datasets.Features(
        id=datasets.Value("int32"),
        question_category=datasets.ClassLabel(names=["Idioms", "Reference"]),
        question_propmt=datasets.Value("string"),
        candidate_answers=datasets.List(datasets.Value("string")),
        correct_answer_idx=datasets.Value("int32"),
    )
    endings = ["runs", "sits", "lies", "eats"]
    row = dict(zip(features, (7, 1, "A man", endings, 2), strict=True))
    data = datasets.Dataset.from_list([row], features)
    datasets.DatasetDict({"train": data}).save_to_disk(str(tmp_path / "hub"))
    expected = {"context": "A man", "choices": endings, "label": "2"}
    assert values(tmp_path / "hub", CHOICE, split="train", form="codah") == [expected]


def test_columns_beside_a_named_format(tmp_path):
    path = write(tmp_path / "a.tsv", "sentence\tlabel\treview\nA\t1\tB\n")
    for function in (read, streamed):
        with pytest.raises(ConfigError) as error:
            function(path, columns={"text": "review"}, form="sst2")
        message = str(error.value)
        assert "data.columns: found text: review, but format sst2 has columns of its own" in message
        assert "leave data.columns out" in message
        assert "auto, tsv, csv" in message
    # what the format says itself is no contradiction
    expected = [{"text": "A", "label": "positive"}]
    assert values(path, columns={"text": "sentence"}, form="sst2") == expected


def test_format_must_suit_the_head(tmp_path):
    path = write(tmp_path / "a.tsv", "sentence\tlabel\nA\t1\n")
    fails(read, path, PAIR, form="sst2", matches="format sst2 has text, label, but the head reads")


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_named_formats_of_other_files(tmp_path, name):
    rows = [{"premise": "A", "hypothesis": "B", "label": label} for label in (0, 2, -1)]
    features = datasets.Features(
        premise=datasets.Value("string"),
        hypothesis=datasets.Value("string"),
        label=datasets.ClassLabel(names=["entailment", "neutral", "contradiction"]),
    )
    data = datasets.Dataset.from_list(rows, features)
    path = str(tmp_path / name)
    data.to_json(path) if "json" in name else data.to_parquet(path)
    found = read(path, PAIR, form="snli")
    assert [row.values["label"] for row in found.rows] == ["entailment", "contradiction"]
    assert found.skipped == {"no gold label": 1}
