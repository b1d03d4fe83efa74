"""Folders that sentence_transformers loads, with the vectors of ``bertlab embed``."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bertlab.api.examples import Labels
from tests.checkpoints.test_fine_tuned import POLARITY, TAGS, write_run
from tests.conftest import Command

sentence_transformers = pytest.importorskip("sentence_transformers")
TEXTS = ["w1 w2 w3", "w77 w8", "w5 " * 40, "w9"]


@pytest.mark.parametrize(
    ("encoder_name", "head", "labels", "architecture"),
    [
        ("bert", "single_sentence", POLARITY, "BertModel"),
        ("modern", "tagging", TAGS, "ModernBertModel"),
    ],
)
def test_vectors_are_those_of_embed(
    tmp_path: Path,
    bertlab: Command,
    encoder_name: str,
    head: str,
    labels: Labels,
    architecture: str,
) -> None:
    run = tmp_path / "run.ckpt"
    write_run(run, {"name": head}, labels, encoder_name)
    code, printed, error = bertlab(
        "export", run, tmp_path / "out", "--format", "sentence-transformers"
    )
    assert (code, error) == (0, "")
    assert printed == f"{tmp_path / 'out'}: {architecture}\n"
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n")
    more = ("--model", run, "--layers=[-1]", "--pool", "mean")
    assert bertlab("embed", tmp_path / "texts", tmp_path / "v.safetensors", *more)[0] == 0
    expected = load_file(tmp_path / "v.safetensors")["embeddings"]
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert model.max_seq_length == 48
    found = torch.from_numpy(model.encode(TEXTS, batch_size=3))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_card_says_how_it_is_loaded(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run.ckpt", {"name": "tagging"}, TAGS)
    assert (
        bertlab(
            "export", tmp_path / "run.ckpt", tmp_path / "out", "--format", "sentence-transformers"
        )[0]
        == 0
    )
    card = (tmp_path / "out" / "README.md").read_text()
    assert "library_name: sentence-transformers\npipeline_tag: sentence-similarity\n" in card
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(card.split("```python")[1].split("```")[0], names)
    assert names["vectors"].shape == (2, 32)
    modules = json.loads((tmp_path / "out" / "modules.json").read_text())
    assert [each["path"] for each in modules] == ["", "1_Pooling"]
