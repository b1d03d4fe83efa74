"""The main job through the command line: fit, resume, validate, predict, export, warm start."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from transformers import AutoTokenizer, BertForPreTraining

from bertlab import load
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.plugins import index as plugins
from bertlab.training.results import read_curves
from tests.conftest import Command
from tests.plugins.strange_packages import install


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_run_checkpoint(run / "checkpoints" / "last.ckpt").state


def test_a_run_directory_holds_all_that_a_run_is(tiny_run: Path) -> None:
    names = {path.name for path in tiny_run.iterdir()}
    assert {
        "config.yaml",
        "manifest.json",
        "results.json",
        "loss_curve.png",
        "checkpoints",
        "tokenizer",
        "csv",
        "tensorboard",
    } <= names
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    assert manifest["seed"] == 3
    assert manifest["threads"] == torch.get_num_threads()
    assert (manifest["device"], manifest["precision"]) == ("cpu", "32-true")
    assert {"torch", "lightning", "bertlab"} <= manifest["packages"].keys()
    results = json.loads((tiny_run / "results.json").read_text())
    assert {"mlm/loss", "mlm/accuracy", "mlm/perplexity", "mlm/unigram_loss", "nsp/accuracy"} <= (
        results.keys()
    )
    config = yaml.safe_load((tiny_run / "config.yaml").read_text())
    assert config["model"]["objectives"] == {"mlm": config["model"]["objectives"]["mlm"], "nsp": {}}
    assert config["model"]["objectives"]["mlm"]["rate"] == 0.15
    steps, norms = read_curves(tiny_run)["gradient_norm"]
    assert len(steps) == 6
    assert min(norms) > 0


def test_the_resolved_config_repeats_the_run_bit_for_bit(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    again = tmp_path / "again"
    code, _, _ = bertlab("fit", "--config", tiny_run / "config.yaml", "--run_dir", again)
    assert code == 0
    first, second = weights(tiny_run), weights(again)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.first_fast
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_resuming_in_the_middle_of_an_epoch_equals_the_undisturbed_run(
    dropout: float, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    resumed = tmp_path / "resumed"
    setting = ("--model.encoder.hidden_dropout_prob", dropout)
    assert bertlab("fit", "--config", tiny_config, "--run_dir", resumed, *setting)[0] == 0
    expected = weights(resumed)
    for later in ("last.ckpt", "step-6.ckpt"):
        (resumed / "checkpoints" / later).unlink()
    middle = resumed / "checkpoints" / "step-3.ckpt"
    assert read_run_checkpoint(middle).global_step == 3
    code, output, error = bertlab("fit", "--ckpt_path", middle)
    assert code == 0, error
    assert "continues from step 3" in output
    assert "training data" not in output  # that report was printed by the first command
    found = weights(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_the_last_step_is_saved_and_scored_wherever_evaluations_fall(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    steps = ("--trainer.max_steps", 5, "--trainer.val_check_interval", 3)
    assert bertlab("fit", "--config", tiny_config, "--run_dir", run, *steps)[0] == 0
    assert read_run_checkpoint(run / "checkpoints" / "last.ckpt").global_step == 5
    results = (run / "results.json").read_text()
    code, output, _ = bertlab("validate", "--ckpt_path", run)
    assert code == 0
    assert f"{json.loads(results)['mlm/loss']:,.3f}" in output
    code, output, _ = bertlab("fit", "--ckpt_path", run)
    assert code == 0  # nothing is left to do
    assert f"{run} ended at step 5; to train longer, " in output
    assert f"--model.init_from {run} --trainer.max_steps N\n" in output
    assert "continues" not in output
    assert (run / "results.json").read_text() == results


def test_resuming_with_another_config_lists_the_differences(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    code, _, error = bertlab(
        "fit", "--ckpt_path", tiny_run, "--run_dir", tmp_path / "x", "--data.batch_size", 16
    )
    assert code == 2
    assert "data.batch_size: 16 here, 8 there" in error
    assert "--model.init_from" in error


def test_a_directory_in_use_is_refused(tiny_run: Path, tiny_config: Path, bertlab: Command) -> None:
    before = (tiny_run / "manifest.json").read_text()
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", tiny_run)
    assert code == 2
    assert "already holds a run" in error
    assert (tiny_run / "manifest.json").read_text() == before


@pytest.mark.slow
def test_validate_repeats_the_final_evaluation(tiny_run: Path, bertlab: Command) -> None:
    code, output, _ = bertlab("validate", "--ckpt_path", tiny_run)
    assert code == 0
    results = json.loads((tiny_run / "results.json").read_text())
    assert f"{results['mlm/loss']:,.3f}" in output
    assert f"{results['nsp/accuracy']:.1%}" in output


def test_predict_fills_masks_and_judges_pairs(tiny_run: Path, bertlab: Command) -> None:
    code, output, _ = bertlab(
        "predict",
        "--ckpt_path",
        tiny_run,
        "--data.text",
        "The [MASK] statement is a [MASK] statement.",
        "--data.text_pair",
        "It is used to import modules.",
    )
    assert code == 0
    (row,) = [json.loads(line) for line in output.splitlines()]
    assert len(row["fillers"]) == 2
    assert all(0 < filler["probability"] < 1 for slot in row["fillers"] for filler in slot)
    assert 0 < row["is_next_probability"] < 1


def test_predict_writes_json_lines(tiny_run: Path, tmp_path: Path, bertlab: Command) -> None:
    output = tmp_path / "predictions.jsonl"
    given = ["a [MASK]", "b [MASK] c", "no mask", "#1 [MASK]", "[a, [MASK]]", "null", "{"]
    texts = [part for text in given for part in ("--text", text)]
    code, _, error = bertlab("predict", "--ckpt_path", tiny_run, *texts, "--output", output)
    assert code == 0, error
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["text"] for row in rows] == given
    assert [len(row["fillers"]) for row in rows] == [1, 1, 0, 1, 1, 0, 0]


def test_an_exported_run_gives_equal_logits_in_transformers(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    folder = tmp_path / "hf"
    assert bertlab("export", tiny_run, folder)[0] == 0
    peer = BertForPreTraining.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "The [MASK] statement."
    with torch.no_grad():
        inputs = tokenizer(text, return_tensors="pt")
        logits = peer(**inputs).prediction_logits[0]
    position = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    best = torch.softmax(logits[position], -1).max()
    _, output, _ = bertlab("predict", "--ckpt_path", tiny_run, "--data.text", text)
    filler = json.loads(output)["fillers"][0][0]
    assert filler["probability"] == pytest.approx(float(best), abs=1e-5)


def test_warm_start_takes_weights_sizes_and_tokenizer(
    tiny_run: Path, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    config = yaml.safe_load(tiny_config.read_text())
    del config["model"]["encoder"]
    config["model"]["init_from"] = str(tiny_run)
    config["data"] |= {"vocab_size": 999, "max_seq_length": 64}
    config["trainer"] |= {"max_steps": 1, "val_check_interval": 1}
    config["model"]["optimizer"] = {"learning_rate": 1e-12, "warmup_steps": 2}
    path = tmp_path / "phase2.yaml"
    path.write_text(yaml.safe_dump(config))
    code, output, error = bertlab("fit", "--config", path, "--run_dir", tmp_path / "phase2")
    assert code == 0, error
    assert "newly initialised" not in output
    # a warm-up that the run does not get to the end of
    assert "warning: model.optimizer.warmup_steps: found 2, of 1 steps: its rate stays" in error
    before, after = weights(tiny_run), weights(tmp_path / "phase2")
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)


def test_warm_start_with_other_sizes_lists_the_tensors(
    tiny_run: Path, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    code, _, error = bertlab(
        "fit",
        "--config",
        tiny_config,
        "--run_dir",
        tmp_path / "x",
        "--model.init_from",
        tiny_run,
        "--model.encoder.hidden_size",
        64,
    )
    assert code == 2
    assert "encoder.token_embedding.weight: checkpoint (300, 32), model (300, 64)" in error
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_warm_start_takes_the_encoders_name_over_and_refuses_another(
    tiny_config: Path, bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {"bertlab.encoders": {"copy": "encoder_of_stranger:Copy"}}
    module = "from bertlab.encoders.bert import BertEncoder\nclass Copy(BertEncoder):\n    pass\n"
    install(tmp_path, "stranger", groups, {"encoder_of_stranger": module})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    content = yaml.safe_load(tiny_config.read_text())
    del content["model"]["encoder"]
    unnamed = tmp_path / "unnamed.yaml"
    unnamed.write_text(yaml.safe_dump(content))
    settings = ("--trainer.max_steps", 2, "--trainer.val_check_interval", 2)
    first = tmp_path / "first"
    fit = ("fit", *settings, "--config")
    named = ("--model.encoder.name", "copy", "--model.encoder.preset", "tiny", "--run_dir", first)
    assert bertlab(*fit, tiny_config, *named)[0] == 0
    warm = ("--model.init_from", first, "--run_dir", tmp_path / "second")
    code, _, error = bertlab(*fit, unnamed, *warm)
    assert code == 0, error
    config = yaml.safe_load((tmp_path / "second" / "config.yaml").read_text())
    assert config["model"]["encoder"]["name"] == "copy"
    code, _, error = bertlab(*fit, tiny_config, "--model.init_from", first)
    assert code == 2
    assert "model.encoder: found bert, but the encoder of model.init_from" in error
    plugins.forget_installed()


SHARED = """
import torch
import torch.nn.functional as F
from torch import nn
from bertlab import Encoder, EncoderOutput, initialize

class Shared(Encoder):
    causal = False
    max_position_embeddings = 64
    layer_norm_eps = 1e-12
    initializer_range = 0.06
    hidden_dropout_prob = 0.0
    activation = staticmethod(F.relu)

    def __init__(self, vocab_size: int, num_hidden_layers: int = 3) -> None:
        super().__init__()
        self.vocab_size, self.hidden_size = vocab_size, 32
        self.num_hidden_layers = num_hidden_layers
        self.token_embedding = nn.Embedding(vocab_size, 8)
        self.wider = nn.Linear(8, 32)
        self.layers = nn.ModuleList([nn.Linear(32, 32)])
        self.pooler = nn.Linear(32, 32)
        initialize(self, self.initializer_range)

    def forward(self, batch, all_layers=False):
        states = [self.wider(self.token_embedding(batch.input_ids))]
        for _ in range(self.num_hidden_layers):
            states.append(states[-1] + self.layers[0](states[-1]).tanh())
        return EncoderOutput(states[-1], batch, self.pooler, states if all_layers else None)
"""


@pytest.mark.slow
def test_an_encoder_with_shared_layers_and_narrow_embeddings_is_resumed_and_used(
    tiny_config: Path, bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ALBERT's: three layers with the weights of one, embeddings of a quarter of the width."""
    install(
        tmp_path,
        "stranger",
        {"bertlab.encoders": {"shared": "sharing:Shared"}},
        {"sharing": SHARED},
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    config = yaml.safe_load(tiny_config.read_text())
    config["model"] = {"encoder": {"name": "shared"}, "objectives": ["mlm"]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    run = tmp_path / "run"
    assert bertlab("fit", "--config", tmp_path / "config.yaml", "--run_dir", run)[0] == 0
    head = load(run).tasks["mlm"]
    assert (head.dense.out_features, head.layer_norm.normalized_shape) == (8, (8,))
    states = torch.randn(2, 32)
    by_hand = head.layer_norm(head.dense(states).relu())
    table = load(run).encoder.token_embedding.weight
    expected = by_hand @ table.T + head.bias
    assert torch.allclose(head.logits(states), expected, atol=1e-6)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0, error
    assert bertlab("predict", "--ckpt_path", run, "--text", "a [MASK]")[0] == 0
    code, _, error = bertlab("fit", "--ckpt_path", run, "--model.encoder.num_hidden_layers", 4)
    assert code == 2
    plugins.forget_installed()


class Refusing(Callback):
    """Refuses at the start, as some of Lightning's own callbacks do of modules or loggers."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise MisconfigurationException("no backbone")


REFUSED = json.dumps([{"class_path": f"{__name__}.Refusing"}])


@pytest.mark.first_fast
@pytest.mark.parametrize("there", [(), ("notes.txt", "csv/mine.csv")])
def test_a_run_that_is_refused_at_its_start_leaves_nothing(
    there: tuple[str, ...], tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    for name in there:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("mine")
    settings = ("--run_dir", run, "--trainer.callbacks", REFUSED)
    code, _, error = bertlab("fit", "--config", tiny_config, *settings)
    assert code == 2, error
    assert "backbone" in error
    assert run.exists() is bool(there), sorted(run.rglob("*"))
    found = sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    assert [name for name in found if "version_" not in name] == sorted(there)
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", run)
    assert code == 0, error


@pytest.mark.slow
def test_a_run_whose_record_lost_files_goes_on(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    assert bertlab("fit", "--config", tiny_config, "--run_dir", run)[0] == 0
    before = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").unlink()
    (run / "manifest.json").write_text('{"seed": 3, "command": "fit", "training_tokens": "many"}')
    step = run / "checkpoints" / "step-3.ckpt"
    code, _, error = bertlab("fit", "--ckpt_path", step)
    assert code == 0, error
    del before["data"]["cache_dir"]  # a checkpoint may not say it
    written = yaml.safe_load((run / "config.yaml").read_text())
    del written["data"]["cache_dir"]
    assert written == before
    assert "seed 3" in (run / "run.html").read_text()
