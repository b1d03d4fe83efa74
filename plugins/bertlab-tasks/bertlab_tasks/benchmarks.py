"""The official files of the paper's tasks, and of some that are like them, by name.

Label names and their order are those of ``nyu-mll/glue`` and its like on the hub, so that ids
agree. The sources of each column are those of the official files, then those of the hub.
"""

# ruff: noqa: RUF012  the mappings of classes are declarations; the contract says ClassVar

from typing import ClassVar

from bertlab.api import NamedFormat
from bertlab.extend import ColumnSources, LabelNames
from bertlab_tasks.submissions import Choices, GlueIds, GlueNames, GlueScores

_NLI = ("entailment", "neutral", "contradiction")
_NLI_COLUMNS: ColumnSources = {
    "text_a": ("sentence1", "premise"),
    "text_b": ("sentence2", "hypothesis"),
    "label": ("gold_label", "label"),
}
_SENTENCES: ColumnSources = {
    "text_a": ("sentence1",),
    "text_b": ("sentence2",),
    "label": ("label",),
}


class Cola(NamedFormat):
    """GLUE CoLA, four columns without a header."""

    columns = {"text": ("sentence", "3"), "label": ("label", "1")}
    label_names = ("unacceptable", "acceptable")
    files = {"train": ["in_domain_train.tsv"], "dev": ["in_domain_dev.tsv"]}
    submission = GlueIds
    submission_file = "CoLA.tsv"


class Sst2(NamedFormat):
    """GLUE SST-2."""

    columns = {"text": ("sentence",), "label": ("label",)}
    label_names = ("negative", "positive")
    submission = GlueIds
    submission_file = "SST-2.tsv"


class Mrpc(NamedFormat):
    """GLUE MRPC, msr_paraphrase_train.txt."""

    columns = {
        "text_a": ("#1 String", "sentence1"),
        "text_b": ("#2 String", "sentence2"),
        "label": ("Quality", "label"),
    }
    label_names = ("not_equivalent", "equivalent")
    files = {"train": ["msr_paraphrase_train.txt"], "test": ["msr_paraphrase_test.txt"]}
    submission = GlueIds
    submission_file = "MRPC.tsv"


class StsB(NamedFormat):
    """GLUE STS-B, scores 0 to 5."""

    columns = {**_SENTENCES, "label": ("score", "label")}
    submission = GlueScores
    submission_file = "STS-B.tsv"


class Qqp(NamedFormat):
    """GLUE QQP."""

    columns = {
        "text_a": ("question1",),
        "text_b": ("question2",),
        "label": ("is_duplicate", "label"),
    }
    label_names = ("not_duplicate", "duplicate")
    skips_broken = True
    submission = GlueIds
    submission_file = "QQP.tsv"


class Mnli(NamedFormat):
    """GLUE MNLI (submission: matched)."""

    columns = _NLI_COLUMNS
    label_names = _NLI
    no_label = "-"  # the annotators did not agree
    files = {
        "train": ["multinli_1.0_train.txt"],
        "dev_matched": ["multinli_1.0_dev_matched.txt"],
        "dev_mismatched": ["multinli_1.0_dev_mismatched.txt"],
    }
    skips_broken = True
    submission = GlueNames
    submission_file = "MNLI-m.tsv"


class MnliMismatched(Mnli):
    """GLUE MNLI (submission: mismatched)."""

    submission_file = "MNLI-mm.tsv"


class Diagnostic(Mnli):
    """GLUE's diagnostic set."""

    files = {}
    submission_file = "AX.tsv"


class Qnli(NamedFormat):
    """GLUE QNLI."""

    columns = {"text_a": ("question",), "text_b": ("sentence",), "label": ("label",)}
    label_names = ("entailment", "not_entailment")
    submission = GlueNames
    submission_file = "QNLI.tsv"


class Rte(NamedFormat):
    """GLUE RTE."""

    columns = _SENTENCES
    label_names = ("entailment", "not_entailment")
    submission = GlueNames
    submission_file = "RTE.tsv"


class Wnli(NamedFormat):
    """GLUE WNLI."""

    columns = _SENTENCES
    label_names = ("not_entailment", "entailment")
    submission = GlueIds
    submission_file = "WNLI.tsv"


class Snli(NamedFormat):
    """SNLI, TSV or JSON lines."""

    columns = _NLI_COLUMNS
    label_names = _NLI
    no_label = "-"  # the annotators did not agree
    files = {split: [f"snli_1.0_{split}.txt"] for split in ("train", "dev", "test")}
    skips_broken = True


class Sick(NamedFormat):
    """SICK entailment."""

    columns = {
        "text_a": ("sentence_A",),
        "text_b": ("sentence_B",),
        "label": ("entailment_judgment", "entailment_label", "label"),
    }
    label_names: ClassVar[LabelNames | None] = {name.upper(): name for name in _NLI}
    files = {
        "train": ["SICK_train.txt"],
        "dev": ["SICK_trial.txt"],
        "test": ["SICK_test_annotated.txt"],
    }


class SickRelatedness(Sick):
    """SICK relatedness, scores 1 to 5."""

    columns = {**Sick.columns, "label": ("relatedness_score",)}
    label_names = None


class Swag(NamedFormat):
    """SWAG CSV."""

    columns = {
        "context": ("sent1",),
        "stem": ("sent2",),
        "choices": (("ending0", "ending1", "ending2", "ending3"),),
        "label": ("label",),
    }
    table = "csv"
    submission = Choices


class Codah(NamedFormat):
    """CODAH, seven columns without a header."""

    columns = {
        "context": ("1", "question_propmt"),  # as the hub spells it
        "choices": (("2", "3", "4", "5"), "candidate_answers"),
        "label": ("6", "correct_answer_idx"),
    }
    submission = Choices
