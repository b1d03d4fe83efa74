"""The official files of the paper's tasks, and of some that are like them, by name.

Label names and their order are those of ``nyu-mll/glue`` and its like on the hub, so that ids
agree. The sources of each column are those of the official files, then those of the hub.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bertlab.data.examples.checks import LabelNames
from bertlab.data.examples.columns import Candidates

TableKind = Literal["tsv", "csv", "conll", "squad"]


@dataclass(frozen=True)
class Benchmark:
    """The form of a benchmark's files.

    Attributes:
        description: in a few words.
        columns: where the columns of a head come from.
        table: how the files are read, unless their name ends in ``.jsonl`` or ``.parquet``.
        label_names: of the classes, in the order of their ids; by the names in the files if those
            are other ones.
        no_label: raw label of rows that annotators did not agree on; they are left out.
        files: patterns of official names for ``train``, ``dev`` and so on, besides ``train.*``.
        skips_broken: the published files have a few broken rows, which are left out.
        submission: what the official server or scorer reads.
        submission_file: the name that the server wants, if any.
    """

    description: str
    columns: Candidates
    table: TableKind = "tsv"
    label_names: LabelNames | None = None
    no_label: str | None = None
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    skips_broken: bool = False
    submission: Literal["ids", "names", "scores", "squad", "conll", "choices"] | None = None
    submission_file: str | None = None


_NLI = ("entailment", "neutral", "contradiction")
_NLI_COLUMNS: Candidates = {
    "text_a": ("sentence1", "premise"),
    "text_b": ("sentence2", "hypothesis"),
    "label": ("gold_label", "label"),
}
_SENTENCES: Candidates = {
    "text_a": ("sentence1",),
    "text_b": ("sentence2",),
    "label": ("label",),
}
_SICK = Benchmark(
    description="SICK entailment",
    columns={
        "text_a": ("sentence_A",),
        "text_b": ("sentence_B",),
        "label": ("entailment_judgment", "entailment_label", "label"),
    },
    label_names={name.upper(): name for name in _NLI},
    files={
        "train": ["SICK_train.txt"],
        "dev": ["SICK_trial.txt"],
        "test": ["SICK_test_annotated.txt"],
    },
)
_MNLI = Benchmark(
    description="GLUE MNLI (submission: matched)",
    columns=_NLI_COLUMNS,
    label_names=_NLI,
    no_label="-",  # the annotators did not agree
    files={
        "train": ["multinli_1.0_train.txt"],
        "dev_matched": ["multinli_1.0_dev_matched.txt"],
        "dev_mismatched": ["multinli_1.0_dev_mismatched.txt"],
    },
    skips_broken=True,
    submission="names",
    submission_file="MNLI-m.tsv",
)

BENCHMARKS: dict[str, Benchmark] = {
    "cola": Benchmark(
        description="GLUE CoLA, four columns without a header",
        columns={"text": ("sentence", "3"), "label": ("label", "1")},
        label_names=("unacceptable", "acceptable"),
        files={"train": ["in_domain_train.tsv"], "dev": ["in_domain_dev.tsv"]},
        submission="ids",
        submission_file="CoLA.tsv",
    ),
    "sst2": Benchmark(
        description="GLUE SST-2",
        columns={"text": ("sentence",), "label": ("label",)},
        label_names=("negative", "positive"),
        submission="ids",
        submission_file="SST-2.tsv",
    ),
    "mrpc": Benchmark(
        description="GLUE MRPC, msr_paraphrase_train.txt",
        columns={
            "text_a": ("#1 String", "sentence1"),
            "text_b": ("#2 String", "sentence2"),
            "label": ("Quality", "label"),
        },
        label_names=("not_equivalent", "equivalent"),
        files={"train": ["msr_paraphrase_train.txt"], "test": ["msr_paraphrase_test.txt"]},
        submission="ids",
        submission_file="MRPC.tsv",
    ),
    "stsb": Benchmark(
        description="GLUE STS-B, scores 0 to 5",
        columns={**_SENTENCES, "label": ("score", "label")},
        submission="scores",
        submission_file="STS-B.tsv",
    ),
    "qqp": Benchmark(
        description="GLUE QQP",
        columns={
            "text_a": ("question1",),
            "text_b": ("question2",),
            "label": ("is_duplicate", "label"),
        },
        label_names=("not_duplicate", "duplicate"),
        skips_broken=True,
        submission="ids",
        submission_file="QQP.tsv",
    ),
    "mnli": _MNLI,
    "mnli_mismatched": replace(
        _MNLI,
        description="GLUE MNLI (submission: mismatched)",
        submission_file="MNLI-mm.tsv",
    ),
    "ax": replace(_MNLI, description="GLUE's diagnostic set", files={}, submission_file="AX.tsv"),
    "qnli": Benchmark(
        description="GLUE QNLI",
        columns={"text_a": ("question",), "text_b": ("sentence",), "label": ("label",)},
        label_names=("entailment", "not_entailment"),
        submission="names",
        submission_file="QNLI.tsv",
    ),
    "rte": Benchmark(
        description="GLUE RTE",
        columns=_SENTENCES,
        label_names=("entailment", "not_entailment"),
        submission="names",
        submission_file="RTE.tsv",
    ),
    "wnli": Benchmark(
        description="GLUE WNLI",
        columns=_SENTENCES,
        label_names=("not_entailment", "entailment"),
        submission="ids",
        submission_file="WNLI.tsv",
    ),
    "snli": Benchmark(
        description="SNLI, TSV or JSON lines",
        columns=_NLI_COLUMNS,
        label_names=_NLI,
        no_label="-",  # the annotators did not agree
        files={split: [f"snli_1.0_{split}.txt"] for split in ("train", "dev", "test")},
        skips_broken=True,
    ),
    "sick": _SICK,
    "sick_relatedness": replace(
        _SICK,
        description="SICK relatedness, scores 1 to 5",
        columns={**_SICK.columns, "label": ("relatedness_score",)},
        label_names=None,
    ),
    "squad": Benchmark(
        description="SQuAD 1.1 and 2.0 JSON",
        columns={name: (name,) for name in ("question", "context", "answers", "id")},
        table="squad",
        # train-v1.1.json, dev-v2.0.json
        files={split: [f"{split}-v[12].[0-9].json"] for split in ("train", "dev")},
        submission="squad",
    ),
    "conll": Benchmark(
        description="a word a line, the word first and its tag last (CoNLL-2003, W-NUT)",
        columns={"words": ("0", "tokens", "words"), "tags": ("-1", "ner_tags", "tags")},
        table="conll",
        files={"train": ["eng.train"], "dev": ["eng.testa"], "test": ["eng.testb"]},
        submission="conll",
    ),
    "swag": Benchmark(
        description="SWAG CSV",
        columns={
            "context": ("sent1",),
            "stem": ("sent2",),
            "choices": (("ending0", "ending1", "ending2", "ending3"),),
            "label": ("label",),
        },
        table="csv",
        submission="choices",
    ),
    "codah": Benchmark(
        description="CODAH, seven columns without a header",
        columns={
            "context": ("1", "question_propmt"),  # as the hub spells it
            "choices": (("2", "3", "4", "5"), "candidate_answers"),
            "label": ("6", "correct_answer_idx"),
        },
        submission="choices",
    ),
}
