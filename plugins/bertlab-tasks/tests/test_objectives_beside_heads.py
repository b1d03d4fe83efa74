"""Objectives beside heads: each part's steps are its own, and what is said, kept and refused."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.training.cli import BertlabCLI, open_command
from bertlab_conformance.printing import printed_config
from test_several_heads_fit import COLORS, changed, written
from tests.conftest import Command


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 rows of a color each."""
    path = tmp_path_factory.mktemp("rows") / "colors.jsonl"
    rows = [{"text": f"value {n} is {COLORS[n % 3]}", "label": COLORS[n % 3]} for n in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def content(colors: Path, tiny_run: Path, corpus_file: Path, cache_dir: Path) -> dict[str, Any]:
    """Config of a head and masked LM: 6 steps of rows and 2 of text in an epoch."""
    return {
        "seed_everything": 5,
        "model": {
            "init_from": str(tiny_run),
            "heads": {"color": "single_sentence"},
            "objectives": {"mlm": {"rate": {"from": 0.3, "to": 0.1}}},
            "optimizer": {"learning_rate": 3e-3},
        },
        "data": {
            "heads": {"color": {"source": str(colors), "validation_fraction": 0.2}},
            "objectives": {
                "corpus": str(corpus_file),
                "corpus_format": "sentences",
                "validation_fraction": 0.2,
                "validation_sequences": 20,
                "cache_dir": str(cache_dir),
            },
            "mixing": {"objectives": 0.25},
            "max_seq_length": 32,
            "batch_size": 8,
        },
        "checkpoint": {"save_top_k": -1},
        "trainer": {"accelerator": "cpu", "max_steps": 16, "log_every_n_steps": 1},
    }


def opened(folder: Path, content: dict[str, Any]) -> BertlabCLI:
    path = written(folder / "c.yaml", content)
    return open_command("fit", read_request(["-c", str(path), "--run_dir", str(folder / "run")]))


def pretraining(content: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return the config of the objectives alone."""
    model, data = dict(content["model"]), dict(content["data"])
    model.pop("heads")
    data.pop("heads")
    data.pop("mixing")
    data |= data.pop("objectives")
    return {
        **content,
        "model": model,
        "data": data,
        "trainer": {**content["trainer"], "max_steps": steps},
    }


def logged(run: Path, name: str) -> list[float]:
    with next(run.glob("csv/**/metrics.csv")).open(encoding="utf-8") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row.get(name)]


@pytest.mark.slow
def test_text_is_read_as_by_the_objectives_alone(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    session = opened(tmp_path, content)
    mixed = session.datamodule
    mixed.trainer = session.trainer
    mixed.train_dataloader()
    alone = opened(tmp_path / "alone", pretraining(content, 4))  # a quarter of 16 steps
    alone.datamodule.trainer = alone.trainer
    alone.datamodule.train_dataloader()
    batches = [mixed.training_steps[step][0] for step in range(16)]
    of_text = [batch for batch in batches if "mlm" in batch.counts]
    assert len(of_text) == 4
    assert [set(batch.counts) for batch in batches].count({"color"}) == 12
    assert mixed.steps_per_epoch() == 8
    for step, batch in enumerate(of_text):
        (expected,) = alone.datamodule.training_steps[step]
        assert torch.equal(batch.input_ids, expected.input_ids)  # masks too, at the changing rate
        assert batch.counts == expected.counts
    masked = [batch.counts["mlm"] / len(batch.input_ids) for batch in of_text]
    assert masked[0] > 1.5 * masked[-1]  # from 0.3 down to 0.1 in the steps of text


@pytest.mark.slow
def test_losses_are_those_of_each_task_alone(
    content: dict[str, Any], tmp_path: Path, bertlab: Command
) -> None:
    still = {"model__optimizer__learning_rate": 1e-30}  # all steps see the initial weights
    session = opened(tmp_path, changed(content, **still))
    session.datamodule.trainer = session.trainer
    session.datamodule.train_dataloader()
    of_text = [
        step for step in range(16) if "mlm" in session.datamodule.training_steps[step][0].counts
    ]
    assert session.run() == 0
    path = written(tmp_path / "text.yaml", pretraining(content, 4))
    assert bertlab("fit", "-c", path, "--run_dir", tmp_path / "text")[0] == 0
    losses = logged(tmp_path / "run", "train/mlm/loss")  # Lightning repeats the last one
    expected = logged(tmp_path / "text", "train/mlm/loss")
    found = losses[len(losses) - 16 + of_text[0] :]
    assert [found[step - of_text[0]] for step in of_text] == pytest.approx(expected, rel=1e-6)
    results = [json.loads((tmp_path / r / "results.json").read_text()) for r in ("run", "text")]
    assert results[0]["mlm/loss"] == pytest.approx(results[1]["mlm/loss"], rel=1e-6)
    manifests = [json.loads((tmp_path / r / "manifest.json").read_text()) for r in ("run", "text")]
    assert manifests[0]["store"] == manifests[1]["store"]
    assert manifests[0]["data"].keys() == {"color/train", "color/validation"}


@pytest.mark.slow
def test_the_head_decides_predicts_and_is_tested(
    content: dict[str, Any], colors: Path, tmp_path: Path, bertlab: Command
) -> None:
    path = written(tmp_path / "c.yaml", changed(content, trainer__val_check_interval=8))
    run = tmp_path / "run"
    code, out, err = bertlab("fit", "-c", path, "--run_dir", run)
    assert code == 0, err
    assert "2 of 8 (" in out
    assert json.loads((run / "best.json").read_text())["monitor"] == "val/color/accuracy"
    code, out, err = bertlab("predict", "--ckpt_path", run, "--text", "value 3 is red")
    assert code == 0, err  # it is the only head: --head need not be said
    assert json.loads(out)["label"] in COLORS
    code, out, err = bertlab("validate", "--ckpt_path", run)
    assert code == 0, err
    assert "perplexity" in out
    code, out, err = bertlab("test", "--ckpt_path", run, "--data.heads.color.test", colors)
    assert code == 0, err
    assert "accuracy" in out
    assert "perplexity" not in out  # held-out text is no test set


@pytest.mark.nightly
def test_resuming_is_exact_and_knows_its_text(
    content: dict[str, Any], corpus_file: Path, tmp_path: Path, bertlab: Command
) -> None:
    text = tmp_path / "moved.txt"
    text.write_bytes(corpus_file.read_bytes())
    changes = {"trainer__val_check_interval": 5, "model__encoder": {"hidden_dropout_prob": 0.1}}
    path = written(tmp_path / "c.yaml", changed(content, **changes))
    assert bertlab("fit", "-c", path, "--run_dir", tmp_path / "whole")[0] == 0
    middle = tmp_path / "whole" / "checkpoints" / "step-5.ckpt"
    resume = ("fit", "--ckpt_path", middle, "--data.objectives.corpus", text, "--run_dir")
    code, _, err = bertlab(*resume, tmp_path / "again")
    assert code == 0, err
    weights = [
        torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in ("whole", "again")
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    text.write_text(text.read_text("utf-8").replace("the", "a", 50), "utf-8")
    code, _, err = bertlab(*resume, tmp_path / "third")
    assert code == 2
    assert f"data.corpus: {text}" in err


@pytest.mark.first_fast
@pytest.mark.parametrize("form", [(), ("skip_default",)])
def test_a_printed_config_repeats_it(
    form: tuple[str, ...], content: dict[str, Any], tmp_path: Path
) -> None:
    request = read_request(["-c", str(written(tmp_path / "c.yaml", content))])
    again = tmp_path / "again.yaml"
    again.write_text(printed_config(request, form), "utf-8")
    assert resolve_request(read_request(["-c", str(again)])) == resolve_request(request)


def test_objectives_that_are_taken_out_take_their_text_along(
    content: dict[str, Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "c.yaml", content)
    found = resolve_request(read_request(["-c", str(path), "--model.objectives.mlm", "null"]))
    assert "objectives" not in found["model"]
    assert "objectives" not in found["data"]
    assert "objectives" not in found["data"]["mixing"]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"data__objectives": None}, "data.objectives.corpus: found none"),
    ({"data__objectives__corpus": "no.txt"}, "no.txt: no such file"),
    ({"data__objectives__corpsu": "no.txt"}, "did you mean 'data.objectives.corpus'?"),
    ({"data__objectives": "no.txt"}, "data.objectives: found 'no.txt', expected their text"),
    ({"data__corpus": "no.txt"}, "the text of objectives is data.objectives.corpus"),
    ({"data__objectives__batch_size": 8}, "data.objectives.batch_size: no such key"),
    ({"data__objectives__validation_fraction": 2}, "data.objectives.validation_fraction: found 2"),
    ({"data__mixing__objectives": 1}, "data.mixing.objectives: found 1.0, expected a share"),
    ({"data__mixing__objectives": 0}, "data.mixing.objectives: found 0.0, expected a share"),
    (
        {"model__objectives": ["nsp"], "data__objectives__input_format": "full_sentences"},
        "data.objectives.input_format is 'full_sentences'",
    ),
    ({"model__heads__color": None}, "data.objectives: without model.heads the text is data.corpus"),
]


@pytest.mark.first_fast
@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_a_mistake_is_one_message_and_leaves_nothing(
    changes: dict[str, Any], message: str, content: dict[str, Any], tmp_path: Path, bertlab: Command
) -> None:
    path = written(tmp_path / "c.yaml", changed(content, **changes))
    code, _, err = bertlab("fit", "-c", path, "--run_dir", tmp_path / "run")
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()
