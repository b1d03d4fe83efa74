"""What notebooks draw of a model: values are the model's, drawings safe and complete."""

import re
from pathlib import Path

import numpy as np
import pytest

import bertlab
from bertlab import PretrainedModel, load
from bertlab.api import BertlabError
from bertlab_pages.inside import Attentions, Entities, Filled, Layers
from browser import complaints
from tests.checkpoints.test_fine_tuned import POLARITY, TAGS, write_run

TEXT = "Return the [MASK] of the [MASK]."


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> PretrainedModel:
    return load(tiny_run)


def html(found: object) -> str:
    drawn = found._repr_html_()  # type: ignore[attr-defined]
    assert isinstance(drawn, str)
    assert not re.search(r"<script|<style|src=|href=|\son\w+=", drawn)
    return drawn


def test_attentions(model: PretrainedModel) -> None:
    found: Attentions = model.attentions(TEXT)
    layers, heads = model.encoder.num_hidden_layers, found.weights.shape[1]
    assert found.weights.shape == (layers, heads, len(found.tokens), len(found.tokens))
    assert found.weights.sum(-1) == pytest.approx(1, abs=1e-5)
    assert html(found).count("<title>") == layers * heads
    head = found.head(layers, 1)
    assert (head.weights == found.weights[-1, 0]).all()
    assert html(head).count("[MASK]") == 2 * 2
    pair = model.attentions("Open it.", "Then read.")
    assert list(pair.tokens).count("[SEP]") == 2
    for wrong in ((0, 1), (layers + 1, 1), (1, heads + 1)):
        with pytest.raises(BertlabError, match="expected numbers"):
            found.head(*wrong)


def test_lines_are_where_the_weights_are() -> None:
    weights = np.array([[0.0, 1.0], [0.02, 0.98]], np.float32)
    drawn = html(Attentions(["a", "b"], weights[None, None]).head(1, 1))
    # from the first to the second token, and from the second to itself; 0.02 is too faint
    paths = {"M118 10L282 30", "M118 30L282 30"}
    assert set(re.findall(r"M\d+ \d+L\d+ \d+", drawn)) == paths


def test_layers_end_with_what_the_model_predicts(model: PretrainedModel) -> None:
    found: Layers = model.layers(TEXT)
    assert found.guesses is not None
    fillers = model.predict(TEXT)[0]["fillers"]
    places = [n for n, token in enumerate(found.tokens) if token == "[MASK]"]
    for place, best in zip(places, fillers, strict=True):
        assert found.guesses[-1][place][0] == best[0]["token"]
        assert found.guesses[-1][place][1] == pytest.approx(best[0]["probability"], abs=1e-5)
    assert found.states.shape[:2] == (len(found.guesses), len(found.tokens))
    assert html(found).count("<tr>") == 1 + len(found.guesses)
    last = model.embed(TEXT, pool="none")
    assert found.states[-1] == pytest.approx(last, abs=1e-5)
    alone = Layers(found.tokens, found.states, None)
    assert alone.cosines.shape == (len(found.guesses) - 1, len(found.tokens))
    assert html(alone).count("<tr>") == len(found.guesses)


def test_fill(model: PretrainedModel) -> None:
    found: Filled = model.fill(TEXT)
    first, second = (each[0]["token"] for each in model.predict(TEXT)[0]["fillers"])
    assert found.text == f"Return the {first} of the {second}."
    assert html(found).count("<mark") == 2
    with pytest.raises(BertlabError, match=r"found no \[MASK\]"):
        model.fill("Return the list.")
    for draw in (model.fill, model.layers, model.attentions):
        with pytest.raises(BertlabError, match=r"text: found list, expected one text"):
            draw([TEXT])
    with pytest.raises(BertlabError, match="no head that marks words"):
        model.entities("Return the list.")


def test_entities(tmp_path: Path) -> None:
    write_run(tmp_path / "run.ckpt", {"name": "tagging"}, TAGS)
    tagger = load(tmp_path / "run.ckpt")
    found: Entities = tagger.entities("w1 w2, w3")
    expected = tagger.predict({"words": ["w1", "w2", ",", "w3"]})[0]["entities"]
    spans = [(each["start_word"], each["end_word"], each["type"]) for each in expected]
    assert (list(found.words), found.spans) == (["w1", "w2", ",", "w3"], spans)
    assert html(found).count("<mark") == len(spans) > 0
    assert tagger.layers("w1 w2").guesses is None
    with pytest.raises(BertlabError, match="no masked LM"):
        tagger.fill("w1 [MASK]")
    write_run(tmp_path / "other.ckpt", {"name": "single_sentence"}, POLARITY)
    with pytest.raises(BertlabError, match="no head that marks words"):
        load(tmp_path / "other.ckpt").entities("w1 w2")


def test_entities_that_overlap_share_their_words() -> None:
    found = Entities(["New", "York", "Times", "sold"], [(0, 2, "LOC"), (0, 3, "ORG")])
    assert found.pieces == [("New York", "LOC ORG"), ("Times", "ORG"), ("sold", "")]


EVIL = "<img src=x onerror=alert(1)>&\"'"


def test_texts_are_texts() -> None:
    weights = np.ones((1, 1, 1, 1), np.float32)
    found = [
        Attentions([EVIL], weights).head(1, 1),
        Layers([EVIL], np.ones((2, 1, 3), np.float32), [[(EVIL, 0.5)], [(EVIL, 0.5)]]),
        Filled([EVIL, EVIL], [[(EVIL, 0.5)]]),
        Entities([EVIL], [(0, 1, EVIL)]),
    ]
    for each in found:
        assert "<img" not in each._repr_html_()  # type: ignore[operator]
        assert "&lt;img" in each._repr_html_()  # type: ignore[operator]


def test_a_long_text_is_told_and_not_drawn() -> None:
    found = Attentions(["a"] * 65, np.zeros((1, 2, 65, 65), np.float32))
    assert found._repr_html_() is None
    assert repr(found) == "<attentions of 1 layers of 2 heads, 65 tokens>"


@pytest.mark.slow
def test_drawings_fit_every_width(model: PretrainedModel, tmp_path: Path) -> None:
    found = model.attentions(TEXT)
    drawn = [found, found.head(1, 1), model.layers(TEXT), model.fill(TEXT)]
    drawn.append(Entities(["New", "York", "sold"] * 20, [(0, 2, "LOC"), (9, 11, "LOC")]))
    dark = "@media (prefers-color-scheme: dark) { body { color: #eee; background: #111 } }"
    style = f"<style>body {{ color: #111; background: #fff }} {dark}</style>"
    page = f"<!doctype html>{style}<body>{'<hr>'.join(map(html, drawn))}"
    assert complaints(page, tmp_path) == []


def test_they_are_methods_of_a_model(model: PretrainedModel) -> None:
    assert {"attentions", "layers", "fill", "entities", "evaluated"} <= set(dir(model))
    assert "masked LM" in model.fill.__doc__
    with pytest.raises(AttributeError, match="has no attribute 'atend'"):
        model.atend  # noqa: B018
    assert not hasattr(model, "_ipython_display_")
    assert not hasattr(bertlab, "attentions")
