"""The score of each row from kept predictions, whose mean is the metric that the head gave."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from bertlab.api.examples import Example
from bertlab.api.task import Head
from bertlab.errors import PluginError
from bertlab.heads.sentences import SingleSentence
from bertlab.training.predictions import open_sink
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.tuning import Rows
from bertlab_studies.report.row_scores import evaluated_rows, keep_common_rows, row_scores
from bertlab_studies.study_scores import Cell
from bertlab_tasks.span import Span
from bertlab_tasks.tagging import Tagging
from tests.heads.samples import built, rows_of

Lines = Sequence[dict[str, Any]]


def scores_of(folder: Path, lines: Lines, metric: str, value: float) -> list[float] | None:
    path = folder / "predictions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    found = row_scores(path, metric, value)
    if found is None:
        return None
    assert found.dtype == np.float64
    return list(map(float, found))


def labelled(*pairs: tuple[object, object]) -> Lines:
    return [{"text": "t", "label": label, "gold": {"label": gold}} for label, gold in pairs]


def scored(*pairs: tuple[float, object]) -> Lines:
    return [{"text": "t", "score": score, "gold": {"label": gold}} for score, gold in pairs]


def answered(*pairs: tuple[str, list[str]]) -> Lines:
    return [
        {"answer": answer, "gold": {"answers": {"text": gold, "answer_start": [0] * len(gold)}}}
        for answer, gold in pairs
    ]


@pytest.mark.parametrize(
    "lines",
    [
        labelled(("red", "red"), ("blue", "red"), ("red", "red")),
        labelled(("1", 1), ("0", 1), ("0", 0)),  # classes are texts, the data's are numbers
        labelled((1, "1"), (0, " 1"), (1, "1 ")),  # choices are numbers, the data's are texts
        labelled(("True", True), ("False", True), ("False", False)),
    ],
)
def test_right_classes(lines: Lines, tmp_path: Path) -> None:
    assert scores_of(tmp_path, lines, "accuracy", 2 / 3) == [1.0, 0.0, 1.0]


def test_float32_means_are_near_enough(tmp_path: Path) -> None:
    lines = labelled(*[("a", "a" if number % 3 else "b") for number in range(1000)])
    value = float(np.float32(666 / 1000))
    found = scores_of(tmp_path, lines, "accuracy", value)
    assert found is not None
    assert sum(found) == 666


def test_the_first_of_several_sets(tmp_path: Path) -> None:
    lines = labelled(("a", "a"), ("a", "b"))
    assert scores_of(tmp_path, lines, "matched/accuracy", 0.5) == [1.0, 0.0]
    assert scores_of(tmp_path, lines, "mismatched/accuracy", 0.7) is None  # other rows


def test_answers_of_squad_1(tmp_path: Path) -> None:
    lines = answered(("the Nile", ["Nile"]), ("a b", ["b c", "b d e"]), ("x", ["y"]))
    assert scores_of(tmp_path, lines, "exact_match", 1 / 3) == [1.0, 0.0, 0.0]
    f1 = scores_of(tmp_path, lines, "f1", (1 + 2 / 3) / 3)  # "a" is an article: b against b c
    assert f1 == pytest.approx([1.0, 2 / 3, 0.0])


def test_answers_of_squad_2(tmp_path: Path) -> None:
    lines = answered(("", []), ("x", []), ("y", ["y", "z"]), ("", ["q"]))
    assert scores_of(tmp_path, lines, "exact_match", 0.5) == [1.0, 0.0, 1.0, 0.0]
    assert scores_of(tmp_path, lines, "f1", 0.5) == [1.0, 0.0, 1.0, 0.0]


def test_questions_of_squad_2_that_all_have_an_answer(tmp_path: Path) -> None:
    lines = answered(("the", ["a", "an"]), ("y", ["y"]))  # no word is left of the first answers
    assert scores_of(tmp_path, lines, "f1", 1.0) == [1.0, 1.0]
    assert scores_of(tmp_path, lines, "f1", 0.5) == [0.0, 1.0]  # as version 1.1 counts


@pytest.mark.parametrize(
    ("lines", "metric", "value"),
    [
        (labelled(("a", "a"), ("b", "a")), "accuracy", 0.6),  # another mean
        (labelled(("a", "a"), ("b", "b")), "f1", 1.0),  # of which class is not known
        (labelled(("a", "a"), ("b", "b")), "accuracy", float("nan")),
        (labelled(("a", "a"), ("b", "b")), "majority_accuracy", 0.5),  # a baseline
        (scored((0.5, 1), (0.5, 2)), "pearson", 0.0),  # not defined
        (scored((0.5, 1), (0.5, 2)), "spearman", float("nan")),
        (scored((float("nan"), 1), (0.5, 2)), "spearman", float("nan")),
        (scored((1.0, 1), (0.5, 2)), "loss", 0.5),
        ([{"label": "a"}], "accuracy", 0.0),  # no truth
        ([{"answer": "a", "gold": {"answers": None}}], "f1", 0.0),
        ([{"tags": ["O"], "gold": {"tags": ["O"]}}], "f1/PER", 1.0),  # what would be 0 / 0 is 0
        ([{"tags": ["O"], "gold": {"tags": ["O"]}}], "majority_accuracy", 1.0),
        ([{"entities": [], "gold": {"tags": ["O"]}}], "f1", 0.0),  # of a plugin
        ([], "accuracy", 0.0),
        ([], "f1", 0.0),
    ],
)
def test_what_gives_no_scores(lines: Lines, metric: str, value: float, tmp_path: Path) -> None:
    assert scores_of(tmp_path, lines, metric, value) is None


class Half(SingleSentence):
    """A head of a stranger's."""

    scores: ClassVar[list[float] | None] = None

    def row_scores(self, metric: str, rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
        return self.scores and self.scores[: len(rows)]


def test_a_heads_own_scores_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "predictions.jsonl"
    lines = labelled(("a", "a"), ("b", "a"))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")

    def found(value: float) -> list[float] | None:
        scores = row_scores(path, "accuracy", value, Rows.ALL, Half())
        return None if scores is None else scores.tolist()

    assert found(0.5) == [1.0, 0.0]  # it gives none: those that its predictions tell
    monkeypatch.setattr(Half, "scores", [0.25, 0.75])
    assert found(0.5) == [0.25, 0.75]
    assert found(0.6) is None
    for wrong in ([0.5], [0.5, float("nan")], [[0.5, 0.5]]):
        monkeypatch.setattr(Half, "scores", wrong)
        with pytest.raises(PluginError, match=r"Half: row_scores\('accuracy'\) gives . finite"):
            found(0.5)


def test_no_predictions(tmp_path: Path) -> None:
    assert row_scores(tmp_path / "predictions.jsonl", "accuracy", 1.0) is None


def kept(folder: Path, head: Head, rows: Sequence[Example], found: Sequence[Any]) -> Path:
    """The file of predictions as a run writes it."""
    path = folder / "predictions.jsonl"
    sink = open_sink(str(path), "jsonl", head)
    for row, prediction in zip(rows, found, strict=True):
        sink.write(row, prediction)
    sink.close()
    return path


def check_all(path: Path, values: dict[str, float], rows: int) -> None:
    """Rows have scores of every metric, and not of another value of it."""
    for name, value in values.items():
        for metric in (name, f"val/{name}"):
            scores = row_scores(path, metric, value)
            assert scores is not None, name
            assert scores.shape == (rows,)
            assert scores.dtype == np.float64
            assert scores.mean() == pytest.approx(value, abs=1e-6)
            assert row_scores(path, metric, value + 1e-3) is None


@pytest.mark.parametrize(
    "labels", [[0, 1], ["paraphrase", "other"], ["c", "a", "b"], [True, False]]
)
def test_metrics_of_classes(labels: list[object], tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    places = torch.randint(len(labels), (60,), generator=generator).tolist()
    rows = rows_of(*({"text": "w1", "label": labels[place]} for place in places))
    head = built(SingleSentence(), rows)
    target = torch.tensor([head.truth_of(row)["label"] for row in rows])
    logits = torch.randn(60, len(labels), generator=generator)
    logits[range(60), target] += 1
    found = decoded(head, logits)
    values = metrics_of(head, logits.argmax(-1), target)
    assert ("f1" in values) == (len(labels) == 2)
    check_all(kept(tmp_path, head, rows, found), values, 60)


@pytest.mark.parametrize("predicted", [0, 1])
def test_one_class_for_every_row(predicted: int, tmp_path: Path) -> None:
    rows = rows_of(*({"text": "w1", "label": number % 2} for number in range(5)))
    head = built(SingleSentence(), rows)
    logits = torch.eye(2)[[predicted] * 5]
    values = metrics_of(head, logits.argmax(-1), torch.tensor([0, 1, 0, 1, 0]))
    assert values["matthews"] == 0
    check_all(kept(tmp_path, head, rows, decoded(head, logits)), values, 5)


def test_metrics_of_numbers(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(2)
    gold = torch.randint(26, (80,), generator=generator) / 5  # as STS-B, with ties
    rows = rows_of(*({"text": "w1", "label": f"{score:.3f}"} for score in gold.tolist()))
    head = built(SingleSentence(regression=True), rows)
    scores = gold + torch.randn(80, generator=generator)
    values = metrics_of(head, scores, gold)
    assert list(values) == ["pearson", "spearman"]
    check_all(kept(tmp_path, head, rows, decoded(head, scores[:, None])), values, 80)


def test_ties_of_numbers_are_those_of_float32(tmp_path: Path) -> None:
    lines = scored((1.0, "1"), (2.0, "1.00000001"), (3.0, "0.5"))
    assert scores_of(tmp_path, lines, "spearman", -(3**0.5) / 2) is not None  # ranks 2.5, 2.5, 1


def decoded(head: Head, logits: torch.Tensor) -> list[dict[str, Any]]:
    head.classify = lambda pooled: logits
    output: Any = type("Output", (), {"pooled": None})
    batch: Any = None
    return head.decode(output, batch)


def metrics_of(head: Head, preds: torch.Tensor, target: torch.Tensor) -> dict[str, float]:
    """All that have scores of rows."""
    values = {}
    for name, metric in head.metrics().items():
        if name not in ("predicted_classes", "majority_accuracy"):
            metric.update(preds, target)
            values[name] = float(metric.compute())
    return values


@pytest.mark.parametrize(
    ("scheme", "names"),
    [
        ("auto", ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]),
        ("bio", ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]),
        ("iob1", ["O", "I-PER", "I-LOC", "B-LOC"]),
        ("none", ["DET", "NOUN", "VERB"]),
    ],
)
def test_metrics_of_tags(scheme: Any, names: list[str], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    gold = [rng.choice(names, length).tolist() for length in rng.integers(0, 9, 50)]
    rows = rows_of(*({"words": ["w1"] * len(tags), "tags": tags} for tags in gold))
    head = built(Tagging(scheme=scheme), rows)
    found = []
    for row in rows:
        right = list(head.labels_of(row))
        tags = [tag if rng.random() < 0.7 else rng.choice(head.labels.names) for tag in right]
        part = {"words": range(len(tags)), "tags": map(str, tags), "scores": [1.0] * len(tags)}
        found.append(head.merge(row, [part]))
    values = head.score(rows, found)
    del values["majority_accuracy"]
    assert len(values) == (1 if scheme == "none" else 6)
    check_all(kept(tmp_path, head, rows, found), values, 50)


@pytest.mark.parametrize("unanswerable", [False, True])
@pytest.mark.parametrize("tuned", [False, True])
def test_metrics_of_answers(unanswerable: bool, tuned: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    context = "the ab cd ef gh"
    texts = ["ab", "ab cd", "cd ef", "gh"]
    head = built(Span(unanswerable=unanswerable))
    rows, found = [], []
    for number in range(60):
        given = [] if unanswerable and number % 3 == 0 else [texts[rng.integers(4)]]
        answers = {"text": given, "answer_start": [context.index(text) for text in given]}
        rows += rows_of({"question": "w1", "context": context, "answers": answers})
        starts = sorted(rng.choice([0, 4, 7, 10, 13], 2).tolist())
        spans = [(starts[0], starts[1] + 2, rng.normal()), (4, 6, rng.normal())]
        null_score = rng.normal() + (0.5 if given else 1.5)
        found.append(head.merge(rows[-1], [{"spans": spans, "null_score": null_score}]))
    if tuned:
        head.tune(rows, found)
    values = head.score(rows, found)
    values.pop("best_f1_threshold", None)
    assert len(values) == (7 if unanswerable else 2)
    check_all(kept(tmp_path, head, rows, found), values, 60)


def half_of(lines: Lines, half: Rows) -> Lines:
    return [line for line, keep in zip(lines, half.of([""] * len(lines)), strict=True) if keep]


@pytest.mark.parametrize("half", [Rows.CHOOSE, Rows.DECIDE])
def test_scores_of_half_of_the_rows_have_its_metric_as_their_mean(
    half: Rows, tmp_path: Path
) -> None:
    rng = np.random.default_rng(4)
    golds = rng.integers(0, 2, 200)
    guesses = np.where(rng.random(200) < 0.7, golds, 1 - golds)
    lines = [
        {"label": str(guess), "scores": {"0": 0.5, "1": 0.5}, "gold": {"label": str(gold)}}
        for guess, gold in zip(guesses, golds, strict=True)
    ]
    path = tmp_path / "predictions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    kept = half.of([""] * 200)
    for metric, reference in (
        ("accuracy", accuracy_score),
        ("f1", f1_score),
        ("matthews", matthews_corrcoef),
    ):
        found = row_scores(path, metric, reference(golds, guesses), half)
        assert found is not None
        assert len(found) == kept.sum()
        assert found.mean() == pytest.approx(reference(golds[kept], guesses[kept]), abs=1e-9)


def test_half_of_the_rows_is_counted_as_the_whole_is(tmp_path: Path) -> None:
    """A half of SQuAD 2.0 that has no question without an answer is still of version 2.0."""
    whole = list(answered(*[("the", ["a"])] * 30))  # version 1.1 counts 0, version 2.0 counts 1
    other = int(np.flatnonzero(Rows.DECIDE.of([""] * 30))[0])
    whole[other] = answered(("", []))[0]
    path = tmp_path / "predictions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in whole), "utf-8")
    found = row_scores(path, "f1", 1.0, Rows.CHOOSE)
    assert found is not None
    assert found.tolist() == [1.0] * len(half_of(whole, Rows.CHOOSE))


def test_half_of_the_rows_that_an_evaluation_scored(tmp_path: Path) -> None:
    path = tmp_path / "x.rows.jsonl"
    scores = [None if row % 5 == 0 else float(row % 2) for row in range(50)]
    path.write_text("".join(json.dumps({"score": each}) + "\n" for each in scores), "utf-8")
    whole = evaluated_rows(path, "x", 0.5)
    assert whole is not None
    for half in (Rows.CHOOSE, Rows.DECIDE):
        found = evaluated_rows(path, "x", 0.5, half)
        assert found is not None
        assert np.array_equal(found, whole[half.of([""] * 50)], equal_nan=True)
    assert evaluated_rows(path, "x", 0.4, Rows.CHOOSE) is None  # of another metric


def test_rows_of_an_evaluation_that_has_scores_of_several_metrics(tmp_path: Path) -> None:
    path = tmp_path / "x.rows.jsonl"
    rows = [{"score": 1.0, "pll_loss": 3.0}, {"score": 2.0, "pll_loss": 4.0}]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")
    for metric, scores in (("loss", [1.0, 2.0]), ("pll_loss", [3.0, 4.0])):
        found = evaluated_rows(path, metric, float(np.mean(scores)))
        assert found is not None
        assert found.tolist() == scores


def test_no_half_of_one_row(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_text(json.dumps(labelled(("a", "a"))[0]) + "\n", "utf-8")
    found = [row_scores(path, "accuracy", 1.0, half) for half in (Rows.CHOOSE, Rows.DECIDE)]
    assert sum(each is None for each in found) == 1


def test_values_are_the_means_over_the_rows_that_all_runs_scored() -> None:
    nan = float("nan")
    one = Cell({1: 0.5, 2: 0.75}, examples={1: np.array([1, nan, 0, 0.5]), 2: np.ones(4)})
    # its second run has left no scores of rows, and cannot be compared over the same
    other = Cell({1: 2 / 3, 2: 0.9}, examples={1: np.array([0, 1, 1, nan])})
    (said,) = keep_common_rows([one, other])
    assert said.startswith("2 rows that some run could not score")
    assert said.endswith("; 1 runs keep no scores of rows, and are left out")
    assert (one.values, other.values) == ({1: 0.5, 2: 1.0}, {1: 0.5})
    assert [each.tolist() for each in one.examples.values()] == [[1.0, 0.0], [1.0, 1.0]]
    assert other.examples[1].tolist() == [0.0, 1.0]
    assert not keep_common_rows([one, other])  # there is nothing to leave out any more


@pytest.mark.parametrize("scores", [([1, np.nan], [np.nan, 1]), ([1, 0], [np.nan, np.nan])])
def test_runs_that_have_no_row_in_common_are_refused(scores: tuple[list[float], ...]) -> None:
    cells = [Cell({1: 1.0}, examples={1: np.array(each, float)}) for each in scores]
    with pytest.raises(StudyError, match="no row was scored by all runs"):
        keep_common_rows(cells)
