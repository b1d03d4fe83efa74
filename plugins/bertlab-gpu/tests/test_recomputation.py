"""``recompute``: less is kept for the backward pass, and losses and gradients stay the same."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import bertlab
from bertlab.api import Encoder
from bertlab.encoders.bert import BertEncoder
from bertlab.model.build import compile_layers
from bertlab_gpu import step_memory
from bertlab_gpu.recomputation import kept_at_once, recompute_layers
from bertlab_gpu.step_memory import StepMemory
from bertlab_modern.modern import ModernEncoder
from tests.conftest import Command

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
SIZES: dict[str, Any] = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 2}
LENGTHS = {"packed": (5, 9, 2), "equal": (8, 8)}


def made(kind: type[Any], **settings: Any) -> Encoder:
    torch.manual_seed(0)
    encoder: Encoder = kind(50, **SIZES, **DROPOUT, **settings)
    return encoder.train()


def passes(encoder: Encoder, lengths: tuple[int, ...]) -> tuple[Tensor, dict[str, Tensor], int]:
    """Return loss, gradients by name, and the bytes that autograd kept."""
    generator, kept = torch.Generator().manual_seed(1), 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    rows = [torch.randint(4, 50, (length,), generator=generator).tolist() for length in lengths]
    torch.manual_seed(2)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = encoder(bertlab.pack(rows))
        loss = output.tokens.square().mean() + output.pooled.square().mean()
    loss.backward()
    found = {name: each.grad for name, each in encoder.named_parameters() if each.grad is not None}
    return loss.detach(), found, kept


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    ("which", "layers"), [(1, (0,)), ("all", (0, 1, 2)), ([2, 0, 0], (0, 2)), (0, ())]
)
@pytest.mark.parametrize("kind", [BertEncoder, ModernEncoder])
def test_losses_and_gradients_stay_with_dropout(
    kind: type[Any], which: Any, layers: tuple[int, ...], lengths: str
) -> None:
    plain, again = made(kind), made(kind)
    assert recompute_layers(again, which) == layers
    loss, gradients, kept = passes(plain, LENGTHS[lengths])
    other, others, fewer = passes(again, LENGTHS[lengths])
    assert torch.equal(loss, other)
    assert gradients.keys() == others.keys()
    for name, each in gradients.items():
        torch.testing.assert_close(each, others[name], rtol=1e-6, atol=1e-8)
    assert fewer <= kept * (1 - 0.25 * len(layers))
    assert plain.state_dict().keys() == again.state_dict().keys()
    with torch.no_grad():  # and where there is no gradient, nothing is done
        batch = bertlab.pack([[5, 6, 7]])
        assert torch.equal(plain.eval()(batch).tokens, again.eval()(batch).tokens)


@pytest.mark.nightly  # compiles for a minute
@pytest.mark.filterwarnings("ignore")  # of torch's compiler about itself
def test_compiled_layers_are_recomputed() -> None:
    plain, again = made(BertEncoder), made(BertEncoder)
    recompute_layers(again, "all", compiles=True)
    compile_layers(plain)
    compile_layers(again)
    for lengths in (*LENGTHS.values(), (3, 4, 5, 11)):
        loss, gradients, kept = passes(plain, lengths)
        other, others, fewer = passes(again, lengths)
        assert torch.equal(loss, other)
        assert fewer < kept / 2
        for name, each in gradients.items():
            torch.testing.assert_close(each, others[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("which", ["2", "All", "auto"])
def test_words_other_than_all_are_no_layers(which: Any) -> None:
    with pytest.raises(bertlab.ConfigError, match=f"recompute: found '{which}' in an encoder of 3"):
        recompute_layers(made(BertEncoder), which)


def weights(run: Path, name: str = "last") -> dict[str, Tensor]:
    content = torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)
    found: dict[str, Tensor] = content["state_dict"]
    return found


def config_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    return found


@pytest.mark.nightly
def test_a_run_is_the_same_and_goes_on(tiny_config: Path, tmp_path: Path, bertlab: Command) -> None:
    """With dropout, packed batches and steps in two parts, whose resumption keeps the key."""
    noise = [f"--model.encoder.{name}={share}" for name, share in DROPOUT.items()]
    parts = ("--trainer.accumulate_grad_batches", 2, "--trainer.val_check_interval", 6)
    fit = ("fit", "--config", tiny_config, *noise, *parts, "--run_dir")
    for name, key in (("plain", ()), ("again", ("--recompute", "[0, 1]"))):
        code, _, error = bertlab(*fit, tmp_path / name, *key)
        assert code == 0, error
    plain, again = weights(tmp_path / "plain"), weights(tmp_path / "again")
    assert plain.keys() == again.keys()
    for name, each in plain.items():
        torch.testing.assert_close(each, again[name], rtol=1e-6, atol=1e-8)
    assert "recompute" not in config_of(tmp_path / "plain")
    assert config_of(tmp_path / "again")["recompute"] == [0, 1]
    manifest = json.loads((tmp_path / "again" / "manifest.json").read_text("utf-8"))
    assert manifest["recomputed_layers"] == [0, 1]

    middle = tmp_path / "again" / "checkpoints" / "step-3.ckpt"
    code, _, error = bertlab("fit", "--ckpt_path", middle, "--run_dir", tmp_path / "resumed")
    assert code == 0, error
    assert config_of(tmp_path / "resumed")["recompute"] == [0, 1]
    resumed = weights(tmp_path / "resumed")
    assert all(torch.equal(each, resumed[name]) for name, each in again.items())
    # it decides nothing that is computed: a run may go on without
    code, _, error = bertlab(
        "fit", "--ckpt_path", middle, "--recompute", 0, "--run_dir", tmp_path / "without"
    )
    assert code == 0, error
    code, _, error = bertlab("validate", "--ckpt_path", tmp_path / "again")
    assert code == 0, error


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("3", "recompute: found 3 in an encoder of 2 layers, expected 0 to 2"),
        ("-1", "recompute: found -1 in an encoder of 2 layers"),
        ("[0, 2]", "recompute: found [0, 2] in an encoder of 2 layers"),
        ("most", "recompute: found 'most'"),
    ],
)
def test_other_layers_are_refused(
    given: str, words: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    key = f"--recompute={given}"
    code, _, error = bertlab("fit", "--config", tiny_config, key, "--run_dir", tmp_path / "run")
    assert code == 2
    assert words in error
    assert not (tmp_path / "run").exists()


LAYERED = StepMemory(model=10**6, token=12_000, layers=(5_000, 5_000), inputs=100)


def test_what_is_kept_at_once() -> None:
    assert kept_at_once(2, (10, 10, 10), 1, ()) == 32
    assert kept_at_once(2, (10, 10, 10), 1, (0,)) == 33  # one alone saves nothing
    assert kept_at_once(2, (10, 10, 10), 1, (0, 1)) == 2 + 1 + 1 + 10 + 10
    memory = StepMemory(0, 32, (10, 10, 10), 1)
    assert memory.fewest_layers(1, 32) == range(0)
    assert memory.fewest_layers(1, 30) == range(2)
    assert memory.fewest_layers(1, 15) == range(3)
    assert memory.fewest_layers(1, 1) == range(3)  # the best that there is


@pytest.mark.nightly
def test_layers_are_recomputed_before_a_step_is_divided_or_refused(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bertlab: Command
) -> None:
    """Eight sequences of 32 tokens take 4.1 MB, or 2.9 MB where both layers are recomputed."""
    free = 3 * 10**6
    monkeypatch.setattr(step_memory, "free_memory", lambda device: free)
    monkeypatch.setattr(step_memory, "measure", lambda model, data, trainer: LAYERED)
    fit = ("fit", "--config", tiny_config, "--trainer.max_steps", 3, "--run_dir")
    auto = ("--trainer.accumulate_grad_batches", "auto")
    code, _, error = bertlab(*fit, tmp_path / "refused", "--recompute", 0)
    assert code == 2
    assert "Expected --recompute auto or all, which changes nothing else" in error
    code, printed, error = bertlab(*fit, tmp_path / "fits")
    assert code == 0, error
    assert "the 2 lowest of 2 layers are recomputed" in printed
    free = 3_700_000  # four fifths are 2.96 MB
    code, printed, error = bertlab(*fit, tmp_path / "auto", *auto)
    assert code == 0, error
    assert "the 2 lowest of 2 layers are recomputed" in printed
    assert config_of(tmp_path / "auto")["trainer"]["accumulate_grad_batches"] == 1
    free = 2_600_000  # four fifths are 2.08 MB: 4 sequences at a time
    code, printed, error = bertlab(*fit, tmp_path / "divided", *auto)
    assert code == 0, error
    assert config_of(tmp_path / "divided")["trainer"]["accumulate_grad_batches"] == 2
    code, printed, error = bertlab(*fit, tmp_path / "never", *auto, "--recompute", 0)
    assert code == 0, error
    assert "are recomputed in" not in printed
    assert config_of(tmp_path / "never")["trainer"]["accumulate_grad_batches"] == 4
