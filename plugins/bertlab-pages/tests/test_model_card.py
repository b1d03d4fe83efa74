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
    assert front == {
        "library_name": "transformers", "pipeline_tag": "fill-mask", "tags": ["bertlab"],
    }  # fmt: skip
    assert headings(body) == [
        "my-bert", "Training", "Data", "Scores", "Limits", "How to load it",
    ]  # fmt: skip
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    results = json.loads((tiny_run / "results.json").read_text())
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
        assert "my-bert" in repr(names["model"]) or type(names["model"]).__name__ in body


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
    (run / "results.json").write_text(json.dumps({f"{HOSTILE}/{HOSTILE}": 1.0}))
    checkpoint.config["data"]["corpus"] = {HOSTILE: HOSTILE}
    checkpoint.config["model"]["init_from"] = HOSTILE
    report = report_of("BertForPreTraining", (HOSTILE,))
    card = card_of(checkpoint, report, ModelAddress(HOSTILE, HOSTILE)).text()
    assert parts(card)[0] == parts(plain)[0]
    body = parts(card)[1]
    assert len(headings(body)) == len(headings(parts(plain)[1]))
    tokens = MARKDOWN.parse(body)
    inside = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in [*tokens, *inside]}
    assert not kinds & {"html_block", "html_inline", "image", "link_open", "code_inline", "em_open"}
    blocks = [token.content for token in tokens if token.type == "fence"]
    assert [block.splitlines()[0] for block in blocks] == [
        "from transformers import AutoTokenizer, BertForPreTraining", "import bertlab",
    ]  # fmt: skip
    assert not re.search("[\u202e\x1b]", card)


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
