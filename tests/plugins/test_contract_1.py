"""Packages that were written for version 1 of the contract go on working."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.api.head import Head
from bertlab.api.source import DataSource
from bertlab.api.task import Objective
from bertlab.errors import PluginError
from bertlab.plugins import index as plugins
from bertlab.plugins.contract_1 import KEPT_UNTIL, MOVED
from bertlab.testing import conformance
from tests.plugins.strange_packages import install

OBJECTIVE = """
import numpy as np
from bertlab.data.counter_rng import CounterRNG
from bertlab.encoders.initialization import initialize
from bertlab.objectives.classification import Accuracy, classification_loss
from bertlab.packed_batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.tasks import Objective, TaskContext, TaskLoss
from torch import nn


class FirstHalf(Objective):
    \"\"\"Tell whether a sequence's number is even.\"\"\"

    def build(self, context: TaskContext) -> None:
        self.classifier = nn.Linear(context.encoder.hidden_size, 2)
        initialize(self, context.encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        sequences.fields["even"] = sequences.indices % 2
        return len(sequences.indices)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        return classification_loss(self.classifier(output.pooled).float(), batch.fields["even"])

    def metrics(self):
        return {"accuracy": Accuracy()}

    def decode(self, output, batch):
        return [{"even": p} for p in self.classifier(output.pooled).softmax(-1)[:, 0].tolist()]
"""
ROWS = """
from bertlab.data.source import DataSource
from bertlab.heads.base import Head
from bertlab.heads.classification import text_ids
from bertlab.heads.classifier_head import check_dropout
from bertlab.labelled_rows import Column, Features, Row
from bertlab.objectives.classification import classification_loss
from torch import nn


class OldHead(Head):
    \"\"\"Classify a text.\"\"\"

    columns = (Column("text"), Column("label", "label", is_truth=True))

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        check_dropout(dropout)

    def add_layers(self, context):
        self.classifier = nn.Linear(context.encoder.hidden_size, len(context.labels))

    def labels_of(self, row: Row):
        return [row.values["label"]]

    def encode(self, row: Row, tokenizer, max_seq_length):
        ids = text_ids(row.values["text"], row, "text", tokenizer)[: max_seq_length - 2]
        fields = {}
        if "label" in row.values:
            fields["label"] = self.labels.id_of(row.values["label"], row.where)
        return [Features(*tokenizer.build_inputs(ids), fields)]

    def loss(self, output, batch):
        return classification_loss(self.classifier(output.pooled).float(), batch.fields["label"])

    def decode(self, output, batch):
        best = self.classifier(output.pooled).argmax(-1).tolist()
        return [{"label": self.labels.names[number]} for number in best]

    def complaint(self, values):
        return "all is well" if values else None


class OldSource(DataSource):
    \"\"\"Give two rows.\"\"\"

    def rows(self, split):
        return [{"text": "one", "label": "a"}, {"text": "two", "label": "b"}]
"""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    groups = {
        "bertlab.objectives": {"even": "old_objective:FirstHalf"},
        "bertlab.heads": {"old_head": "old_rows:OldHead"},
        "bertlab.sources": {"old-rows": "old_rows:OldSource"},
        plugins.CONTRACT_GROUP: {"contract": "v1"},
    }
    modules = {"old_objective": OBJECTIVE, "old_rows": ROWS}
    install(tmp_path, "old-package", groups, modules)
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    yield tmp_path
    plugins.forget_installed()
    for name in (*modules, *MOVED):
        sys.modules.pop(name, None)


def test_an_objective_conforms_and_its_package_is_warned_of_once(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = conformance("even")
    plugins.load_class("objective", "even", Objective)
    error = capsys.readouterr().err
    words = "old-package was written for version 1 of the plugin contract, which works until"
    assert error.count(f"{words} {KEPT_UNTIL}") == 1
    for check in (
        "loss_is_a_sum",
        "loss_does_not_leak",
        "learns",
        "saved_and_restored_is_the_same",
    ):
        test(check)


def test_a_head_and_a_source_answer_to_the_names_of_today(old: Path) -> None:
    head = plugins.load_class("head", "old_head", Head)()
    assert head.warning({"loss": 1.0}) == "all is well"
    test = conformance("old_head")
    for check in ("encode_fits_the_encoder", "loss_is_a_sum", "merges_to_rows"):
        test(check)
    source = plugins.load_class("source", "old-rows", DataSource)("old-rows", "")
    assert [row["label"] for _, row in source.raw_examples("train").rows] == ["a", "b"]


def test_a_package_of_today_gets_no_old_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from bertlab.tasks import Objective\n"
    groups = {"bertlab.objectives": {"today": "today:Objective"}}
    install(tmp_path, "today", groups, {"today": code})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if "_Old" not in str(type(f))])
    for name in MOVED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    plugins.forget_installed()
    with pytest.raises(PluginError, match=r"No module named 'bertlab\.tasks'"):
        plugins.load_class("objective", "today", Objective)
    plugins.forget_installed()
