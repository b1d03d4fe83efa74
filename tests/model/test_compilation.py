"""Compiled layers compute the same; checkpoints do not know about them."""

import shutil
from pathlib import Path

import pytest
import torch

from bertlab.api.batch import pack
from bertlab.encoders.bert import BertEncoder
from bertlab.model.build import compile_layers
from bertlab_modern.modern import ModernEncoder
from tests.conftest import Command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore"),  # torch warns about what its compiler itself does
]


@pytest.mark.nightly
def test_a_compiled_run_ends_as_a_plain_one(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    weights = []
    for compiled in ("false", "true"):
        run = tmp_path / compiled
        code, _, error = bertlab(
            "fit", "--config", tiny_config, "--run_dir", run, "--compile", compiled,
            "--trainer.max_steps", 3,
        )  # fmt: skip
        assert code == 0, error
        checkpoint = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        weights.append(checkpoint["state_dict"])
    plain, compiled_weights = weights
    assert plain.keys() == compiled_weights.keys()
    for name, weight in plain.items():
        assert torch.allclose(weight, compiled_weights[name], atol=1e-5), name


@pytest.mark.first_slow
@pytest.mark.parametrize("kind", [BertEncoder, ModernEncoder])
def test_batches_of_other_shapes_compile_nothing_anew(
    kind: type[BertEncoder | ModernEncoder],
) -> None:
    torch.manual_seed(0)
    encoder = kind(50, "tiny")
    batches = [pack([[3] * n for n in ns], [[0] * n for n in ns]) for ns in ([5, 9], [7, 2], [30])]
    expected = [encoder.eval()(batch).tokens for batch in batches]
    encoder.train()
    compile_layers(encoder)
    with torch._dynamo.config.patch(recompile_limit=4), torch.compiler.set_stance("default"):
        encoder(batches[0])
        with torch.compiler.set_stance("fail_on_recompile"):
            encoder(batches[1])
            encoder(batches[2])
        encoder.eval()
        for batch, plain in zip(batches, expected, strict=True):
            assert torch.allclose(encoder(batch).tokens, plain, atol=1e-5)


@pytest.mark.nightly
def test_gradients_through_compiled_rotary_layers_are_the_same() -> None:
    torch.manual_seed(0)
    encoder = ModernEncoder(50, "mini", local_window=8)
    batch = pack([[3, 4] * 10, [5] * 9])
    weights = torch.randn(29, 256)
    gradients = []
    for _ in range(2):
        encoder.zero_grad()
        (encoder(batch).tokens * weights).sum().backward()
        gradients.append({n: p.grad for n, p in encoder.named_parameters() if p.grad is not None})
        compile_layers(encoder)
    for name, gradient in gradients[0].items():
        close = 1e-5 * float(gradient.abs().max())
        assert torch.allclose(gradient, gradients[1][name], atol=close), name
