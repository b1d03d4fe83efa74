"""The null threshold that a run tunes is that of the weights it ends with, and is saved so."""

import json
import random
from pathlib import Path
from shlex import split

import pytest
import torch

from bertlab.cli.main import main
from tests.conftest import Command

AVERAGE = "{class_path: EMAWeightAveraging, init_args: {decay: 0.8}}"
CASES = {
    "ends between two evaluations": "",
    "averages of weights": f"--trainer.callbacks+ '{AVERAGE}'",
    "averages of weights, evaluated at the end": (
        f"--trainer.callbacks+ '{AVERAGE}' --trainer.max_steps 8"
    ),
    "schedule-free": "--model.optimizer.name schedule_free --model.optimizer.schedule constant "
    "--model.optimizer.warmup_steps 0",
}


def questions(path: Path, count: int, seed: int) -> Path:
    """Write questions whose answer is one word of four, where the context has it."""
    draws, lines = random.Random(seed), []
    for number in range(count):
        words = [draws.choice(["old", "new", "red", "big"]) for _ in range(6)]
        place, has_answer = draws.randrange(6), number % 2 == 0
        words[place] = "Rome" if has_answer or draws.random() < 0.3 else "old"
        start = len(" ".join(words[:place])) + (place > 0)
        answers = {"text": ["Rome"], "answer_start": [start]} if has_answer else {}
        row = {"question": "What is it?", "context": " ".join(words)}
        lines.append(json.dumps({**row, "answers": answers or {"text": [], "answer_start": []}}))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def runs() -> dict[str, Path]:
    """The run of each case, once it was asked for."""
    return {}


@pytest.fixture
def ended(
    case: str, runs: dict[str, Path], tiny_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    if case not in runs:
        place = tmp_path_factory.mktemp("span")
        arguments = [
            "fit", "--model.head", "{name: span, unanswerable: true}",
            "--model.init_from", tiny_run, "--data.max_seq_length", 32, "--data.batch_size", 8,
            "--data.train", questions(place / "train.jsonl", 48, 1),
            "--data.validation", questions(place / "dev.jsonl", 24, 2),
            "--model.optimizer.learning_rate", 0.01, "--trainer.max_steps", 10,
            "--trainer.val_check_interval", 4, "--trainer.logger", "false", "--say_cost", "false",
            "--keep_predictions", "true", "--run_dir", place / "run", *split(CASES[case]),
        ]  # fmt: skip
        assert main(list(map(str, arguments))) == 0
        runs[case] = place / "run"
    return runs[case]


def state(run: Path) -> dict[str, torch.Tensor]:
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert isinstance(saved, dict)
    return saved


@pytest.mark.first_fast
@pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback with a model that")
@pytest.mark.parametrize("case", CASES)
def test_the_threshold_is_that_of_the_last_weights(ended: Path) -> None:
    results = json.loads((ended / "results.json").read_text("utf-8"))
    saved = float(state(ended)["tasks.span.null_threshold"])
    assert saved == pytest.approx(results["span/best_f1_threshold"], abs=1e-6)
    assert results["span/f1"] == results["span/best_f1"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback with a model that")
@pytest.mark.parametrize("case", CASES)
def test_a_finished_run_stays_as_it_is(ended: Path, bertlab: Command) -> None:
    """Resumed at its end it has the same weights, figures and predictions."""
    before = state(ended)
    names = ("results.json", "predictions.jsonl")
    kept = {name: (ended / name).read_text("utf-8") for name in names}
    for name in names:
        (ended / name).unlink()
    code, _, error = bertlab("fit", "--ckpt_path", ended, "--config", ended / "config.yaml")
    assert code == 0, error
    assert {name: (ended / name).read_text("utf-8") for name in names} == kept
    assert all(torch.equal(each, before[name]) for name, each in state(ended).items())
