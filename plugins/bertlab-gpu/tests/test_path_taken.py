"""The kernels that a run computes by are in its manifest."""

from pathlib import Path

import pytest

from bertlab.cli.main import main
from bertlab.extend import read_manifest, sessions_of

PLAIN = {
    "attention": "padded, torch's scaled dot products",
    "loss": "by rows, with its gradient",
    "layers": "as they are",
    "steps": "launched kernel by kernel",
}
PRODUCTS = {**PLAIN, "attention": "padded, matrix products"}


def run(tiny_config: Path, folder: Path, *arguments: str) -> list[dict[str, str] | None]:
    """Train; return what the manifest says of each session."""
    given = ["--config", str(tiny_config), "--run_dir", str(folder), *arguments]
    assert main(["fit", *given]) == 0
    return [each.get("kernels") for each in sessions_of(read_manifest(folder))[1:]]


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ((), PLAIN),
        (("--model.encoder.attention_probs_dropout_prob=0.1",), PRODUCTS),
        (("--trainer.precision=bf16-mixed",), PRODUCTS),
    ],
)
def test_attention_goes_by_dropout_and_precision_on_a_cpu(
    arguments: tuple[str, ...], path: dict[str, str], tiny_config: Path, tmp_path: Path
):
    assert run(tiny_config, tmp_path / "run", *arguments) == [path]
