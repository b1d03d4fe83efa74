"""Which figures of a run are in percent: those that its tasks and metrics declare."""

import json
from pathlib import Path

import pytest
from torchmetrics import MeanMetric

from bertlab.api.measures import is_share
from bertlab.data.module import EvaluationRows
from bertlab.heads.sentences import SingleSentence
from bertlab.model.evaluation import Evaluations
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.training.results import read_shares, result_rows
from bertlab.training.run import Run


class Coverage(MeanMetric):
    """A metric of a plugin, whose name says nothing."""

    is_share = True


def test_tasks_and_metrics_declare_their_shares() -> None:
    tasks = {"mlm": MaskedLM(), "tone": SingleSentence()}
    sets = [EvaluationRows("dev", tasks=["tone"]), EvaluationRows(tasks=["mlm"])]
    evaluations = Evaluations(tasks, sets, {"coverage": Coverage()})
    evaluations.declared = {"blimp": ["accuracy"]}
    assert evaluations.shares() == {
        "blimp": ["accuracy"],
        "mlm": ["accuracy", "coverage"],
        "tone": ["accuracy", "f1", "macro_f1", "coverage"],
    }


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("tone/f1", True),
        ("tone/dev/f1/PER", True),
        ("tone/majority_f1", True),
        ("tone/recall", False),  # it ends as a share does, and its task declares none
        ("mlm/f1", False),
        ("loss", False),
        ("heads/mean", False),
    ],
)
def test_a_share_is_its_own_tasks(name: str, share: bool) -> None:
    assert is_share(name, {"tone": ["f1"], "mlm": ["accuracy"]}) is share


def test_figures_go_by_what_is_declared() -> None:
    results = {"x/coverage": 0.5, "x/unigram_coverage": 0.25, "x/accuracy": 0.5, "loss": 1.0}
    assert result_rows(results, {"x": ["coverage"]}) == [
        ("x", "coverage", "50.0%", "25.0% (unigram)"),
        ("x", "accuracy", "0.500", ""),
    ]


def test_a_run_notes_its_shares_and_shows_them(tiny_run: Path) -> None:
    assert read_shares(tiny_run) == {"mlm": ["accuracy"], "nsp": ["accuracy"]}
    results = json.loads((tiny_run / "results.json").read_text())
    shown = f"<td>mlm/accuracy</td><td>{results['mlm/accuracy']:.1%}</td>"
    assert shown in Run(tiny_run)._repr_html_()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, {}),
        ("accuracy", {}),
        (["mlm"], {}),
        ({"mlm": "accuracy"}, {}),
        ({"mlm": [1, "f1"], "nsp": None}, {"mlm": ["1", "f1"]}),
    ],
)
def test_a_manifest_may_come_from_anywhere(
    tmp_path: Path, found: object, expected: dict[str, list[str]]
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"shares": found}))
    assert read_shares(tmp_path) == expected
    assert read_shares(tmp_path / "elsewhere") == {}
