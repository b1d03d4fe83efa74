"""The recipes of the paper's tasks read their data, in the original format and as on the hub."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from bertlab.api.task import Head
from bertlab.data.examples.source import read_rows
from bertlab.plugins.index import load_class

Command = Callable[..., tuple[int, str, str]]
CONFIGS = Path(__file__).parents[2] / "configs" / "finetune"
ROWS = range(8)
TEXT = Value("string")
NLI = ("entailment", "neutral", "contradiction")
TWO = ("entailment", "not_entailment")


def tsv(rows: Iterable[Sequence[object]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def pairs(header: str, row: Callable[[int], Sequence[object]]) -> str:
    return tsv([header.split(), *(row(n) for n in ROWS)])


def squad(answerable: Callable[[int], bool]) -> str:
    paragraphs = [
        {
            "context": f'The "value" {n} is red.',
            "qas": [
                {
                    "id": f"q{n}",
                    "question": "What is it?",
                    "is_impossible": not answerable(n),
                    "answers": [{"text": "red", "answer_start": 15 + len(str(n))}]
                    if answerable(n)
                    else [],
                }
            ],
        }
        for n in ROWS
    ]
    return json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]})


CONLL = "-DOCSTART- -X- O O\n\n" + "".join(
    f"EU NNP I-NP I-ORG\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n{n} CD I-NP O\n\n" for n in ROWS
)
SWAG = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)

# config: content of a file in the original format
ORIGINAL = {
    "cola": tsv(("gj04", n % 2, "*", f'The "value {n} is') for n in ROWS),
    "sst2": pairs("sentence label", lambda n: (f'a "fine value {n}', n % 2)),
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    + tsv((n % 2, n, n, f'It "is {n}', "It is") for n in ROWS),
    "stsb": pairs(
        "index genre filename year old_index source1 source2 sentence1 sentence2 score",
        lambda n: (n, "g", "f", "y", n, "s", "s", f'a "value {n}', "a value", f"{n / 2:.3f}"),
    ),
    "qqp": pairs(
        "id qid1 qid2 question1 question2 is_duplicate",
        lambda n: (n, n, n, f'What "is {n}?', "What is it?", n % 2),
    ),
    "mnli": pairs(
        "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
        "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label",
        lambda n: (n, n, n, *"gbbpp", f"A value {n}", "A value", "-", (*NLI, "-")[n % 4]),
    ),
    "qnli": pairs(
        "index question sentence label", lambda n: (n, f"What is {n}?", 'It "is', TWO[n % 2])
    ),
    "rte": pairs(
        "index sentence1 sentence2 label", lambda n: (n, f"A value {n}", 'It "is', TWO[n % 2])
    ),
    "wnli": pairs("index sentence1 sentence2 label", lambda n: (n, f"A value {n}", "It is", n % 2)),
    "squad-v1.1": squad(lambda n: True),
    "squad-v2.0": squad(lambda n: n % 2 == 0),
    "swag": "\n".join(
        [SWAG, *(f'{n},v,1,s,"It is {n}, red.",It,gold,is a,is b,is c,is d,{n % 4}' for n in ROWS)]
    ),
    "codah": tsv(("i", f"It is {n}", "a", "b", "c", "d", n % 4) for n in ROWS),
    "conll2003": CONLL,
    "conll2003-features-last": CONLL,
}
# config: what of it a tiny encoder, or a local file in the original format, needs to be different
CHANGES = {
    "squad-v1.1": ("--model.head.doc_stride", "8", "--model.head.max_query_length", "8"),
    "squad-v2.0": ("--model.head.doc_stride", "8", "--model.head.max_query_length", "8"),
    "conll2003-features-last": ("--model.head.hidden_size", "16"),
}
ENDINGS = {"squad-v1.1": "json", "squad-v2.0": "json", "swag": "csv"}
NAMES = {"swag": ("train", "val"), "conll2003": ("eng.train", "eng.testa")}

# config: what the best checkpoint is chosen by
MONITORED = {
    "cola": "val/single_sentence/matthews",
    "sst2": "val/single_sentence/accuracy",
    "mrpc": "val/sentence_pair/f1",
    "stsb": "val/sentence_pair/spearman",
    "qqp": "val/sentence_pair/f1",
    "mnli": "val/sentence_pair/matched/accuracy",
    "qnli": "val/sentence_pair/accuracy",
    "rte": "val/sentence_pair/accuracy",
    "wnli": "val/sentence_pair/accuracy",
    "squad-v1.1": "val/span/f1",
    "squad-v2.0": "val/span/f1",
    "swag": "val/multiple_choice/accuracy",
    "codah": "val/multiple_choice/accuracy",
    "conll2003": "val/tagging/f1",
    "conll2003-features-last": "val/feature_tagging/f1",
}


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("name", ORIGINAL)
def test_a_recipe_reads_files_in_the_original_format(
    name: str, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    task = name.removesuffix("-features-last")
    ending = "" if task == "conll2003" else f".{ENDINGS.get(task, 'tsv')}"
    names = NAMES.get(task, ("train", "dev"))
    for split in ("train", "dev_matched", "dev_mismatched") if task == "mnli" else names:
        (tmp_path / f"{split}{ending}").write_text(ORIGINAL[name], "utf-8")
    run = tmp_path / "run"
    code, out, err = bertlab(
        "fit", "--config", CONFIGS / f"{name}.yaml", "--model.init_from", tiny_run,
        "--data.source", tmp_path, "--data.max_seq_length", "32", "--data.batch_size", "4",
        "--trainer.max_steps", "2", "--trainer.accelerator", "cpu", "--trainer.logger", "false",
        "--run_dir", run, *CHANGES.get(name, ()),
    )  # fmt: skip
    assert code == 0, err
    numbers = [line.split()[-2] for line in out.splitlines() if line.startswith("│ rows ")]
    assert numbers == [str(6 if task == "mnli" else 8)] * (3 if task == "mnli" else 2)
    results = json.loads((run / "results.json").read_text())
    if task == "mnli":
        assert {"sentence_pair/matched/accuracy", "sentence_pair/mismatched/accuracy"} <= set(
            results
        )
    best = json.loads((run / "best.json").read_text())
    assert best["monitor"] == MONITORED[name]


def classes(*names: str) -> dict[str, ClassLabel]:
    return {"label": ClassLabel(names=list(names))}


SENTENCES = {"sentence1": TEXT, "sentence2": TEXT}
ANSWERS = {"text": List(TEXT), "answer_start": List(Value("int32"))}
TAGS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
# config: the columns on the hub (as far as they matter), a row, and its label as it is to be read
HUB: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "cola": (
        {"sentence": TEXT, **classes("unacceptable", "acceptable")},
        {"sentence": "a", "label": 1},
        "acceptable",
    ),
    "sst2": (
        {"sentence": TEXT, **classes("negative", "positive")},
        {"sentence": "a", "label": 1},
        "positive",
    ),
    "mrpc": ({**SENTENCES, **classes("not_equivalent", "equivalent")}, {"label": 1}, "equivalent"),
    "stsb": ({**SENTENCES, "label": Value("float32")}, {"label": 2.5}, 2.5),
    "qqp": (
        {"question1": TEXT, "question2": TEXT, **classes("not_duplicate", "duplicate")},
        {"label": 1},
        "duplicate",
    ),
    "mnli": (
        {"premise": TEXT, "hypothesis": TEXT, **classes(*NLI)},
        {"label": 2},
        "contradiction",
    ),
    "qnli": (
        {"question": TEXT, "sentence": TEXT, **classes("entailment", "not_entailment")},
        {"label": 1},
        "not_entailment",
    ),
    "rte": (
        {**SENTENCES, **classes("entailment", "not_entailment")},
        {"label": 1},
        "not_entailment",
    ),
    "wnli": ({**SENTENCES, **classes("not_entailment", "entailment")}, {"label": 1}, "entailment"),
    "squad-v1.1": (
        {"id": TEXT, "title": TEXT, "context": TEXT, "question": TEXT, "answers": ANSWERS},
        {"answers": {"text": ["a"], "answer_start": [0]}},
        {"text": ["a"], "answer_start": [0]},
    ),
    "squad-v2.0": (
        {"id": TEXT, "title": TEXT, "context": TEXT, "question": TEXT, "answers": ANSWERS},
        {"answers": {"text": [], "answer_start": []}},
        {"text": [], "answer_start": []},
    ),
    "swag": (
        {
            **{key: TEXT for key in ("sent1", "sent2", "ending0", "ending1", "ending2", "ending3")},
            **classes(*"0123"),
        },
        {"label": 3},
        "3",
    ),
    "codah": (
        {
            "question_propmt": TEXT,
            "candidate_answers": List(TEXT),
            "correct_answer_idx": Value("int32"),
        },
        {"candidate_answers": ["a", "b", "c", "d"], "correct_answer_idx": 3},
        "3",
    ),
    "conll2003": (
        {"tokens": List(TEXT), "ner_tags": List(ClassLabel(names=TAGS))},
        {"tokens": ["a", "b"], "ner_tags": [3, 0]},
        ["B-ORG", "O"],
    ),
}


@pytest.mark.parametrize("name", HUB)
def test_a_recipe_reads_the_columns_of_the_hub(name: str, tmp_path: Path) -> None:
    columns, row, truth = HUB[name]
    row = {key: row.get(key, "text") for key in columns}
    data = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text("utf-8"))
    head = data["model"]["head"]
    head = head if isinstance(head, str) else head["name"]
    data = data["data"]
    assert data["source"].startswith("hf:")
    dataset = Dataset.from_list([row], Features(columns))
    DatasetDict({"train": dataset}).save_to_disk(str(tmp_path / "hub"))

    head_class = load_class("head", head, Head)
    assert issubclass(head_class, Head)
    wanted = head_class.columns
    read = read_rows(
        str(tmp_path / "hub"), "train", data.get("columns", {}), data.get("format", "auto"), wanted
    )
    (found,) = (dict(each.values) for each in read.rows)
    (column,) = (each.name for each in wanted if each.is_truth)
    assert found[column] == truth
    assert {each.name for each in wanted if each.required} <= set(found)


def test_the_feature_recipes_are_the_rows_of_table_7() -> None:
    rows = {}
    for path in CONFIGS.glob("conll2003-features-*.yaml"):
        head = yaml.safe_load(path.read_text("utf-8"))["model"]["head"]
        assert head["hidden_size"] == 768
        layers = [layer % 13 for layer in head["layers"]]  # of BERT-Base, with its embeddings
        how = head.get("combine") if len(layers) > 1 else None
        rows[path.stem.removeprefix("conll2003-features-")] = (layers, how)
    assert rows == {
        "embeddings": ([0], None),
        "second-to-last": ([11], None),
        "last": ([12], None),
        "weighted-sum-last-four": ([9, 10, 11, 12], "weighted_sum"),
        "concat-last-four": ([9, 10, 11, 12], "concat"),
        "weighted-sum-all": (list(range(1, 13)), "weighted_sum"),
    }


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("name", "mapping", "columns"),
    [
        ("sentence-pair", "{text_a: question, text_b: answer, label: ok}", "question answer ok"),
        ("single-sentence", "{text: review, label: stars}", "review stars"),
    ],
)
def test_a_file_of_ones_own(
    name: str, mapping: str, columns: str, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    file = tmp_path / "mine.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        header = columns.split()
        writer.writerow(header)
        writer.writerows(
            [*(f"text, {n} of {key}" for key in header[:-1]), ("yes", "no")[n % 2]]
            for n in range(20)
        )
    config = CONFIGS / f"{name}.yaml"
    code, out, err = bertlab(
        "fit", "--config", config, "--model.init_from", tiny_run, "--data.source", file,
        "--data.columns", mapping, "--data.max_seq_length", "32", "--trainer.max_steps", "2",
        "--trainer.log_every_n_steps", "1",
        "--trainer.accelerator", "cpu", "--run_dir", tmp_path / "run",
    )  # fmt: skip
    assert code == 0, err
    assert "initialised from" in out
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert sorted(manifest["labels"]) == ["no", "yes"]
