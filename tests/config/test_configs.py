"""Every config in configs/ parses against the real signatures, and the sizes are the paper's."""

from pathlib import Path

import pytest
import torch

from bertlab.config.run_config import resolve_arguments
from bertlab.model.build import build_encoder
from bertlab.plugins.index import installed

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "studies")
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}
SIZES |= {"base": (12, 768), "large": (24, 1024)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONFIGS).as_posix())
def test_a_config_is_valid(path: Path) -> None:
    _, config = resolve_arguments(["--config", str(path)])
    if path.parent.name == "finetune":
        assert config["model"]["head"]["name"] in installed("head")
        assert config["trainer"]["max_epochs"] > 0
        return
    assert list(config["model"]["objectives"]) == ["mlm", "nsp"]
    with torch.device("meta"):
        encoder = build_encoder(config["model"]["encoder"], vocab_size=30522)
    size = path.stem.split("-")[1] if path.stem.startswith("bert-") else "tiny"
    assert (encoder.num_hidden_layers, encoder.hidden_size) == SIZES[size]
    assert config["data"]["max_seq_length"] <= encoder.max_position_embeddings
    assert config["trainer"]["max_steps"] > 0


def test_there_is_a_config_for_every_size() -> None:
    stems = {path.stem for path in FILES}
    assert {f"bert-{size}" for size in SIZES} <= stems
    assert "quickstart" in stems
