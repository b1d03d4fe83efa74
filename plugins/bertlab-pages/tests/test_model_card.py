"""The card of an export: made from the run, and plain text whatever names stand in it."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from markdown_it import MarkdownIt

from bertlab.api import ExportReport, ModelAddress
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab_interop.transformers_folder import TransformersExporter
from bertlab_pages.card_head import card_head, own_results
from bertlab_pages.model_card import ModelCard, model_card
from tests.conftest import Command

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
HOSTILE = "a`b ``` \n---\n# Title\n\nlicense: x\n<script>alert(1)</script>|![x](http://y)*&#60;\u202e\x1b[2J"


def card_of(start: Pretrained, report: ExportReport, address: ModelAddress) -> ModelCard:
    code = TransformersExporter().loading_code(report, address)
    return model_card(start, report, code, address)


def report_of(architecture: str, notes: tuple[str, ...] = ()) -> ExportReport:
    described = f"A {architecture} of transformers"
    return ExportReport(architecture, described, [*notes], form="transformers")


def parts(card: str) -> tuple[dict[str, object], str]:
    """Front matter and body."""
    _, front, body = card.split("---\n", 2)
    return yaml.safe_load(front), body


def headings(body: str) -> list[str]:
    tokens = MARKDOWN.parse(body)
    return [tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open"]


def test_the_card_says_what_the_run_recorded(
    tiny_run: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bertlab("export", tiny_run, tmp_path / "my-bert")[0] == 0
    front, body = parts((tmp_path / "my-bert" / "README.md").read_text("utf-8"))
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    results = json.loads((tiny_run / "results.json").read_text())
    ((index,),) = (each.pop("results") for each in front.pop("model-index"))  # type: ignore[attr-defined]
    assert front == {
        "library_name": "transformers", "pipeline_tag": "fill-mask", "tags": ["bertlab"],
        "metrics": ["accuracy", "perplexity"],
    }  # fmt: skip
    assert index["task"] == {"type": "fill-mask"}
    assert index["dataset"]["name"] == "topics.txt, held out"
    assert {each["name"]: each["value"] for each in index["metrics"]} == {
        name: round(results[name], 6) for name in ("mlm/accuracy", "mlm/perplexity")
    }
    assert headings(body) == [
        "my-bert", "Intended use", "Training", "Data", "Scores", "Limits", "How to load it",
    ]  # fmt: skip
    for expected in (
        manifest["corpus"],
        manifest["tokenizer"],
        f"seed | {manifest['seed']} |",
        f"| mlm | loss | {results['mlm/loss']:,.3f} |",
        f"| nsp | accuracy | {results['nsp/accuracy']:.1%} |",
        "over 32 tokens",
        "step 6, of one run with seed 3",
        "| topics.txt |",
    ):
        assert expected in body, expected
    assert "/" not in re.sub(r"https?://\S+", "", body.split("## Scores")[0])  # nobody's folders
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", body, re.DOTALL):
        names: dict[str, object] = {}
        exec(code, names)
        assert (
            "predict" in names
            or "my-bert" in repr(names["model"])
            or type(names["model"]).__name__ in body
        )


def test_no_name_breaks_out_of_its_place(tiny_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    checkpoint = read_run_checkpoint(run / "checkpoints" / "last.ckpt")
    assert checkpoint.config is not None
    plain = card_of(checkpoint, report_of("BertForPreTraining"), ModelAddress("name")).text()
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= dict.fromkeys(("corpus", "device", "precision", "tokenizer", "seed"), HOSTILE)
    manifest["packages"] = {HOSTILE: HOSTILE}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "results.json").write_text(json.dumps({f"mlm/{HOSTILE}/accuracy": 1.0}))
    checkpoint.config["data"]["corpus"] = {HOSTILE: HOSTILE}
    checkpoint.config["model"]["init_from"] = HOSTILE
    report = report_of("BertForPreTraining", (HOSTILE,))
    card = card_of(checkpoint, report, ModelAddress(HOSTILE, HOSTILE)).text()
    front = parts(card)[0]
    assert set(front) == set(parts(plain)[0])
    (model,) = front["model-index"]  # type: ignore[misc,has-type]
    assert model["name"].startswith("a`b ``` --- # Title license")
    assert model["results"][0]["metrics"][0]["name"].startswith("mlm/a`b")
    body = parts(card)[1]
    assert len(headings(body)) == len(headings(parts(plain)[1]))
    tokens = MARKDOWN.parse(body)
    inside = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in [*tokens, *inside]}
    assert not kinds & {"html_block", "html_inline", "image", "link_open", "code_inline", "em_open"}
    blocks = [token.content for token in tokens if token.type == "fence"]
    assert [block.splitlines()[0] for block in blocks] == [
        "from transformers import pipeline",
        "from transformers import AutoTokenizer, BertForPreTraining", "import bertlab",
    ]  # fmt: skip
    assert not re.search("[\u202e\x1b]", card)


def test_figures_of_another_task_are_left_out() -> None:
    results = {"mlm/accuracy": 0.5, "nsp/accuracy": 0.6, "loss": 1.0}
    along = {"blimp/accuracy": 0.7, "sts/spearman": 0.8}  # evaluations along the run
    tasks = ("mlm", "nsp")
    found = own_results(results | along, "BertForMaskedLM", None, {}, tasks)
    assert found == {"mlm/accuracy": 0.5}
    assert own_results(results | along, "BertForPreTraining", None, {}, tasks) == results
    heads = {"mrpc": {"name": "sentence_pair"}, "sst2": "single_sentence"}
    results = {"mrpc/accuracy": 0.5, "sst2/accuracy": 0.6, "mlm/loss": 1.0, "heads/mean": 0.5}
    shown = own_results(results, "BertForSequenceClassification", "single_sentence", heads, ())
    assert shown == {"sst2/accuracy": 0.6}
    twice = heads | {"sst2": {"name": "sentence_pair"}}  # which of the two was exported?
    assert own_results(results, "BertForSequenceClassification", "sentence_pair", twice, ()) == {}


def test_the_head_has_no_figures_of_another_task() -> None:
    results = {"mlm/accuracy": 0.5, "nsp/accuracy": 0.6, "sop/accuracy": 0.7, "blimp/accuracy": 0.8}
    text = card_head("a", "transformers", "fill-mask", None, [], None, results)
    (index,) = yaml.safe_load(text)["model-index"]
    (found,) = index["results"]
    assert found["metrics"] == [{"type": "accuracy", "value": 0.5, "name": "mlm/accuracy"}]


def test_models_and_data_of_the_hub_are_named_in_the_head(tiny_run: Path) -> None:
    checkpoint = read_run_checkpoint(tiny_run / "checkpoints" / "last.ckpt")
    assert checkpoint.config is not None
    checkpoint.config["model"]["init_from"] = "google-bert/bert-base-uncased"
    checkpoint.config["data"]["corpus"] = ["hf:me/texts/en", "more.txt"]
    front, _ = parts(card_of(checkpoint, report_of("BertForMaskedLM"), ModelAddress("a")).text())
    assert front["base_model"] == "google-bert/bert-base-uncased"
    assert front["datasets"] == ["me/texts"]


def test_a_damaged_record_is_named_and_nothing_is_written(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text('{"mlm/loss": "low"}')
    code, _, error = bertlab("export", tmp_path / "run", tmp_path / "out")
    assert code == 2
    assert error.startswith("bertlab: error E405")
    assert "results.json" in error
    assert not (tmp_path / "out").exists()


def test_a_model_of_others_has_a_card_without_a_record() -> None:
    start = Pretrained("google-bert/x", {"name": "bert"}, 9, {"encoder.x": torch.zeros(2, 3)}, None)
    card = card_of(start, report_of("BertModel"), ModelAddress("out")).text()
    assert "google-bert/x" in card
    assert "no record" in card
    assert "pipeline_tag" not in card
    assert "| 6 |" in card
