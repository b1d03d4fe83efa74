"""What a run is said to take: nothing of it changes the run, and the shape is the run's own."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertlab.extend import read_request, resolve_request
from bertlab_pages import run_cost, say_cost
from bertlab_pages.run_cost import in_bytes, in_time, measure_pretraining, within_an_hour
from tests.conftest import Command


def config_of(*arguments: object) -> dict:
    return resolve_request(read_request(["--config", "quickstart", *map(str, arguments)]))


@pytest.mark.slow
def test_the_cost_of_a_pre_training_before_its_text_is_there() -> None:
    missing = config_of("--data.corpus", "none/such", "--trainer.max_steps", 10)
    mini = config_of("--model.encoder.preset", "mini")
    # a clock that goes by the work alone, whatever else the machine does: 1e9 operations a second
    with FlopCounterMode(display=False) as done:
        short, larger = (
            measure_pretraining(each, lambda: done.get_total_flops() / 1e9)
            for each in (missing, mini)
        )
    assert short.steps == 10
    assert short.seconds > 10 * short.step.seconds  # and an evaluation
    assert 55 < short.step.tokens <= 64
    assert short.step.checkpoint == pytest.approx(12e6, rel=0.1)  # a million weights, twelve bytes
    assert short.disk == pytest.approx(2 * short.step.checkpoint)
    assert larger.step.seconds > 2 * short.step.seconds
    again = measure_pretraining(config_of("--model.encoder.preset", "mini", "--recompute", "all"))
    assert again.step.memory < 0.7 * larger.step.memory
    parts = measure_pretraining(config_of("--trainer.accumulate_grad_batches", 4))
    assert parts.step.memory < short.step.memory


@pytest.mark.slow
def test_documents_of_ones_own_decide_the_length(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("\n\n".join(["Four words are here.\nFive more of them here."] * 200), "utf-8")
    cost = measure_pretraining(config_of("--data.corpus", text, "--data.max_seq_length", 128))
    assert cost.step.tokens < 25


@pytest.mark.nightly
def test_what_ends_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("--model.encoder.preset", "mini", "--trainer.max_steps", 3_000_000)
    cost = measure_pretraining(config)
    said = within_an_hour(config, cost)
    steps = int(re.search(r"max_steps (\d+)", said)[1])
    assert steps * cost.step.seconds == pytest.approx(3600, rel=0.1)
    assert "preset" not in said  # tiny takes days, too
    monkeypatch.setattr(run_cost, "HOUR", cost.seconds / 2)
    assert "or all with --model.encoder.preset tiny" in within_an_hour(config, cost)
    monkeypatch.setattr(run_cost, "HOUR", cost.seconds * 2)
    assert within_an_hour(config, cost) is None


def test_several_devices_are_not_timed() -> None:
    assert measure_pretraining(config_of("--trainer.devices", 2)) is None
    assert measure_pretraining(config_of("--compile", "true")) is None


@pytest.mark.nightly
def test_a_run_says_its_cost_and_stays_as_it_is(
    bertlab: Command, tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for few, given in ((1, "true"), (1, "false"), (10**9, "true")):
        monkeypatch.setattr(say_cost, "_FEW", few)
        run = tmp_path / f"{few}-{given}"
        code, output, error = bertlab(
            *("fit", tiny_config, "--run_dir", run, "--say_cost", given),
            *("--trainer.max_steps", 10),
        )
        assert code == 0, error
        assert ("on this machine: about" in output) == (few == 1 and given == "true")
        state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        ends.append((state, json.loads((run / "results.json").read_text("utf-8"))))
    for state, results in ends[1:]:
        assert results == ends[0][1]
        assert all(torch.equal(state[name], ends[0][0][name]) for name in state)


@pytest.mark.slow
def test_first_steps_tell_the_cost_of_rows_and_evaluations_do_not_count(
    bertlab: Command, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(say_cost, "_FEW", 1)
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"it is {n},{n % 2}\n" for n in range(40)), "utf-8")
    code, output, error = bertlab(
        *("fit", "--model.init_from", tiny_run, "--model.head", "single_sentence"),
        *("--data.source", rows, "--data.max_seq_length", 32, "--data.batch_size", 8),
        *("--trainer.max_epochs", 6, "--trainer.accelerator", "cpu", "--run_dir", tmp_path / "r"),
    )
    assert code == 0, error
    begin, _, _ = output.partition("on this machine: about")
    assert "step 5 " in begin  # an epoch of 5 steps has been evaluated before the eighth
    assert re.search(
        r"on this machine: about .+ms a step\), [\d.]+ [MG]B of memory, .+ of disk", output
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_memory_is_that_of_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``getrusage`` gives begins with the peak of the process that started this one."""
    from_starter = SimpleNamespace(ru_maxrss=2**40)
    monkeypatch.setattr("resource.getrusage", lambda _: from_starter)
    has_own = "VmHWM" in Path("/proc/self/status").read_text()
    assert (run_cost.process_memory() < 2**40) == has_own


def test_words() -> None:
    assert [in_time(each) for each in (42, 600, 7_200, 1e6)] == ["42 s", "10 min", "2 h", "12 days"]
    assert [in_bytes(each) for each in (2.5e6, 3.1e9)] == ["2 MB", "3.1 GB"]
