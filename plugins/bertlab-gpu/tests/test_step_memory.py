"""How much memory a step takes is known before training, and a step is divided so that it fits."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from bertlab_gpu import step_memory
from bertlab_gpu.step_memory import StepMemory
from tests.conftest import Command

GB = 10**9


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the machine says that it has, to be changed; a step of the tiny config takes 3.6 MB."""
    given = {"bytes": GB}
    takes = StepMemory(model=10**6, token=10**4)
    monkeypatch.setattr(step_memory, "free_memory", lambda device: given["bytes"])
    monkeypatch.setattr(step_memory, "measure", lambda model, data, trainer: takes)
    return given


def trainer_of(run: Path) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((run / "config.yaml").read_text("utf-8"))["trainer"]
    return found


def weights(run: Path) -> dict[str, torch.Tensor]:
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    found: dict[str, torch.Tensor] = content["state_dict"]
    return found


@pytest.mark.slow
def test_a_step_that_does_not_fit_is_refused_with_the_numbers(
    tiny_config: Path, tmp_path: Path, free: dict[str, int], bertlab: Command
) -> None:
    free["bytes"] = 3 * 10**6
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "8 sequences at a time" in error
    assert "--trainer.accumulate_grad_batches auto" in error
    assert not (tmp_path / "run").exists()
    free["bytes"] = 10**6
    auto = ("--trainer.accumulate_grad_batches", "auto")
    code, _, error = bertlab("fit", "--config", tiny_config, *auto, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "Not even one at a time fits" in error


@pytest.mark.nightly
def test_auto_divides_a_step_and_a_resumption_keeps_the_parts(
    tiny_config: Path, tmp_path: Path, free: dict[str, int], bertlab: Command
) -> None:
    fit = ("fit", "--config", tiny_config, "--run_dir")
    auto = ("--trainer.accumulate_grad_batches", "auto")
    free["bytes"] = 2_600_000
    code, printed, error = bertlab(*fit, tmp_path / "auto", *auto)
    assert code == 0, error
    trainer = trainer_of(tmp_path / "auto")
    parts = trainer["accumulate_grad_batches"]
    assert parts == 3  # 1 MB, and 3 sequences of 32 tokens of 10 kB, are below 80 % of 2.6 MB
    assert trainer["val_check_interval"] == 9  # each third step, as the config asks
    assert "in 3 parts" in printed
    by_hand = ("--trainer.accumulate_grad_batches", 3, "--trainer.val_check_interval", 9)
    assert bertlab(*fit, tmp_path / "by hand", *by_hand)[0] == 0
    free["bytes"] = GB  # enough for a whole step, which rounds otherwise
    one = bertlab(*fit, tmp_path / "one")
    assert one[0] == 0
    found, same = weights(tmp_path / "auto"), weights(tmp_path / "by hand")
    assert all(torch.equal(found[name], same[name]) for name in same)
    whole = weights(tmp_path / "one")
    assert all(torch.allclose(found[name], whole[name], atol=1e-5) for name in whole)

    (tmp_path / "auto" / "results.json").unlink()
    again = ("--ckpt_path", tmp_path / "auto" / "checkpoints" / "step-3.ckpt")
    code, _, error = bertlab("fit", "--config", tiny_config, *auto, *again)
    assert code == 0, error
    assert trainer_of(tmp_path / "auto")["accumulate_grad_batches"] == 3
    resumed = weights(tmp_path / "auto")
    assert all(torch.equal(found[name], resumed[name]) for name in found)


@pytest.mark.slow
def test_measuring_changes_nothing_of_the_run(
    tiny_config: Path,
    tiny_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bertlab: Command,
) -> None:
    monkeypatch.setattr(step_memory, "_HARMLESS", 0.0)
    dropout = ("--model.encoder.hidden_dropout_prob", 0.1)
    fit = ("fit", "--config", tiny_config, *dropout, "--run_dir")
    assert bertlab(*fit, tmp_path / "measured")[0] == 0
    monkeypatch.undo()
    assert bertlab(*fit, tmp_path / "plain")[0] == 0
    found, expected = weights(tmp_path / "measured"), weights(tmp_path / "plain")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_several_devices_are_given_a_number(tiny_config: Path, bertlab: Command) -> None:
    auto = ("--trainer.accumulate_grad_batches", "auto", "--trainer.devices", 2)
    code, _, error = bertlab("fit", "--config", tiny_config, *auto, "--trainer.strategy", "ddp")
    assert code == 2
    assert "found auto on 2 devices, expected a number" in error


_MEASURED = """
import sys
from pathlib import Path
from bertlab_gpu import step_memory
from bertlab.cli.main import main

step_memory._HARMLESS = 0.0
measure = step_memory.measure

def kilobytes(name):
    # not ru_maxrss: a process that was just started has that of the one which started it
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith(name)][0]

def measured(*given):
    found = measure(*given)
    print("takes", found.of(given[1].mean_lengths()[0] * 2048))
    print("before", kilobytes("VmRSS"))
    return found

step_memory.measure = measured
code = main(sys.argv[1:])
print("peak", kilobytes("VmHWM"))
sys.exit(code)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_the_estimate_is_what_a_process_takes(tiny_config: Path, tmp_path: Path) -> None:
    """The peak of a process, less what it had before training."""
    sizes = ["--model.encoder.hidden_size", "128", "--data.batch_size", "2048"]
    run = ["--run_dir", str(tmp_path / "run"), "--trainer.max_steps", "2"]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, "fit", "--config", str(tiny_config), *sizes, *run],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    numbers = [
        re.search(pattern, done.stdout)
        for pattern in (r"takes ([\d.]+)", r"peak (\d+)", r"before (\d+)")
    ]
    takes, peak, before = (float(found[1]) for found in numbers if found is not None)
    assert 0.6 < takes / (1024 * (peak - before)) < 1.6
