"""The paper's left-to-right ablation through the command, with and without a BiLSTM (table 5)."""

import json
from pathlib import Path

import pytest
import yaml

from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.cli.main import main
from tests.conftest import Command

COLORS = ("red", "blue")


@pytest.fixture(scope="module")
def causal_run(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Path:
    """The directory of a finished left-to-right pre-training run."""
    directory = tmp_path_factory.mktemp("runs") / "ltr"
    given = ["--model.objectives", "[clm]", "--model.encoder.causal", "true"]
    assert main(["fit", "--config", str(tiny_config), *given, "--run_dir", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose first word is the label."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    lines = [
        json.dumps({"text": f"{COLORS[n % 2]} is the value {n}", "label": COLORS[n % 2]})
        for n in range(40)
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def arguments(start: Path, rows: Path, run: Path, *more: str) -> list[str]:
    return [
        *("--model.init_from", str(start), "--model.head", "single_sentence"),
        *("--data.source", str(rows), "--data.max_seq_length", "32", "--data.batch_size", "8"),
        *("--trainer.accelerator", "cpu", "--seed_everything", "5", "--trainer.max_epochs", "12"),
        *("--model.optimizer.learning_rate", "3e-3", "--trainer.log_every_n_steps", "1"),
        *("--run_dir", str(run), *more),
    ]


@pytest.mark.first_slow
@pytest.mark.parametrize(
    "bilstm_layers", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))]
)
def test_a_left_to_right_run_is_fine_tuned(
    bilstm_layers: int, causal_run: Path, rows: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    more = ["--model.encoder.bilstm_layers", str(bilstm_layers)] if bilstm_layers else []
    code, out, err = bertlab("fit", *arguments(causal_run, rows, run, *more))
    assert code == 0, err
    (report,) = (line for line in out.splitlines() if line.startswith("newly initialised: "))
    names = report.removeprefix("newly initialised: ").split(", ")
    new = [name for name in names if name.startswith("encoder.bilstm.")]
    assert len(new) == 8 * bilstm_layers
    heads = [name for name in names if name.startswith("tasks.single_sentence.classifier.")]
    assert len(new) + len(heads) == len(names)
    assert json.loads((run / "results.json").read_text())["single_sentence/accuracy"] > 0.9

    encoder = yaml.safe_load((run / "config.yaml").read_text())["model"]["encoder"]
    assert encoder["causal"] is True
    assert encoder["bilstm_layers"] == bilstm_layers
    start = read_run_checkpoint(causal_run / "checkpoints" / "last.ckpt").encoder_state
    tuned = read_run_checkpoint(run / "checkpoints" / "last.ckpt").encoder_state
    assert {f"encoder.{name}" for name in set(tuned) - set(start)} == set(new)

    code, out, err = bertlab("predict", "--ckpt_path", run, "--data.input", rows)
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert sum(row["label"] == row["gold"]["label"] for row in found) > 36

    code, _, err = bertlab("export", run, tmp_path / "out")
    assert code != 0
    assert ("BiLSTM" if bilstm_layers else "pools the first token") in err
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_bilstm_goes_on_a_bidirectional_run_too(
    tiny_run: Path, rows: Path, tmp_path: Path, bertlab: Command
) -> None:
    more = ["--model.encoder.bilstm_layers", "1"]
    code, out, err = bertlab("fit", *arguments(tiny_run, rows, tmp_path / "run", *more))
    assert code == 0, err
    assert "encoder.bilstm.weight_ih_l0" in out
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["single_sentence/accuracy"] > 0.9


def test_a_left_to_right_language_model_under_a_bilstm_is_refused(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    given = ["--model.objectives", "[clm]", "--model.encoder.causal", "true"]
    given += ["--model.encoder.bilstm_layers", "1", "--run_dir", str(tmp_path / "run")]
    code, _, err = bertlab("fit", "--config", tiny_config, *given)
    assert code == 2
    assert "clm needs a left-to-right encoder" in err
    assert not (tmp_path / "run").exists()
