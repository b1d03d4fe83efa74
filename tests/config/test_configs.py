"""Every config in configs/ parses against the real signatures, and the sizes are the paper's."""

from pathlib import Path

import pytest
import torch

from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.config.yaml_files import Config
from bertlab.model.build import build_encoder
from bertlab.plugins.index import installed

CONFIGS = Path(__file__).parents[2] / "configs"
NO_RUNS = ("studies", "evaluations", "recipes")
FILES = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name not in NO_RUNS)
OBJECTIVES = {"strict-small": ["mlm"], "strict-small-clm": ["clm"], "modern-tiny": ["mlm"]}
SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}
SIZES |= {"base": (12, 768), "large": (24, 1024)}


@pytest.mark.first_fast
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONFIGS).as_posix())
def test_a_config_is_valid(path: Path) -> None:
    config = resolve_request(read_request(["--config", str(path)]))
    model = config["model"]
    if heads := [model["head"]] if "head" in model else [*model.get("heads", {}).values()]:
        assert path.parent.name in ("finetune", "templates")
        assert all(head["name"] in installed("head") for head in heads)
        assert config["trainer"]["max_epochs"] > 0
        return
    assert list(config["model"]["objectives"]) == OBJECTIVES.get(path.stem, ["mlm", "nsp"])
    with torch.device("meta"):
        encoder = build_encoder(config["model"]["encoder"], vocab_size=30522)
    size = path.stem.split("-")[1] if path.stem.startswith("bert-") else "tiny"
    size = "mini" if path.parent.name in ("babylm", "templates") else size
    assert (encoder.num_hidden_layers, encoder.hidden_size) == SIZES[size]
    assert config["data"]["max_seq_length"] <= encoder.max_position_embeddings
    if path.parent.name == "babylm":
        check_babylm(config)
    else:
        assert config["trainer"]["max_steps"] > 0


def check_babylm(config: Config) -> None:
    """Ten epochs of ten million words, and a checkpoint at each number that BabyLM asks for."""
    assert config["trainer"]["max_epochs"] == 10
    assert config["trainer"]["max_steps"] == -1
    assert config["max_words"] == 10 * 10**7
    million = 10**6
    small, large = range(million, 10 * million, million), range(10**7, 10**8 + 1, 10**7)
    assert config["checkpoint_words"] == [*small, *large]


def test_there_is_a_config_for_every_size() -> None:
    stems = {path.stem for path in FILES}
    assert {f"bert-{size}" for size in SIZES} <= stems
    assert "quickstart" in stems


def test_the_quickstart_is_berts_own_recipe() -> None:
    """The paper's encoder and optimizer, key by key."""
    files = (CONFIGS / "quickstart.yaml",)
    config = resolve_request(
        read_request([word for path in files for word in ("--config", str(path))])
    )
    encoder, optimizer = config["model"]["encoder"], config["model"]["optimizer"]
    assert encoder["name"] == "bert"
    assert "name" not in optimizer  # AdamW has none in a resolved config
    sizes = {"preset": "tiny", "max_position_embeddings": 128, "initializer_range": 0.06}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    assert {key: encoder[key] for key in sizes | rates} == sizes | rates
    plain = resolve_request(read_request(["--model.encoder.name", "bert", "--data.corpus", "c"]))
    others = encoder.keys() - (sizes | rates).keys()
    assert {key: encoder[key] for key in others} == {
        key: plain["model"]["encoder"][key] for key in others
    }
    assert optimizer == plain["model"]["optimizer"] | {"learning_rate": 2e-3, "warmup_steps": 0.1}
