"""``bertlab.fit``, ``Run`` and ``bertlab.load``: the command's pipeline from Python."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
import yaml
from lightning.pytorch import Callback

from bertlab.checkpoints.pretrained_model import load
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.errors import CheckpointError, ConfigError, DataError, OutputError
from bertlab.tokenizer.files import WordPieceTokenizer
from bertlab.training import cli
from bertlab.training.run import Run, fit
from tests.conftest import Command


def test_fit_trains_what_the_command_trains(
    tiny_config: Path, tiny_run: Path, tmp_path: Path
) -> None:
    run = fit(tiny_config, {"run_dir": str(tmp_path / "run")})
    ours, theirs = (
        read_run_checkpoint(each / "checkpoints" / "last.ckpt").state
        for each in (run.directory, tiny_run)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert run.is_finished
    assert run.metrics == json.loads((tiny_run / "results.json").read_text("utf-8"))
    assert run.manifest["command"][:4] == ["bertlab", "fit", "--config", str(tiny_config)]


@pytest.mark.slow
def test_a_config_is_a_mapping_too_and_overrides_win(tiny_config: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(tiny_config.read_text("utf-8"))
    run = fit(content, {"run_dir": str(tmp_path / "run"), "trainer.max_steps": 2})
    assert run.config["trainer"]["max_steps"] == 2
    assert read_run_checkpoint(run.directory / "checkpoints" / "last.ckpt").global_step == 2


@pytest.mark.slow
def test_history_and_picture(tiny_run: Path) -> None:
    run = Run(tiny_run)
    history = run.history
    assert list(history["step"]) == sorted(history["step"])
    losses = history["val/loss"].dropna()
    assert losses.iloc[-1] == pytest.approx(run.metrics["loss"])
    assert run.plot()._repr_png_().startswith(b"\x89PNG")
    assert "mlm/loss" in run._repr_html_()


@pytest.mark.slow
def test_a_run_predicts_as_the_command_does(tiny_run: Path, bertlab: Command) -> None:
    text = "A [MASK] of words."
    (predicted,) = Run(tiny_run).predict([text])
    code, out, _ = bertlab("predict", "--ckpt_path", tiny_run, "--data.text", text)
    assert code == 0
    line = json.loads(out.splitlines()[-1])
    assert line.pop("text") == text
    six_digits = json.loads(
        json.dumps(predicted), parse_float=lambda number: float(f"{float(number):.6g}")
    )
    assert six_digits == line


def test_an_export_is_loaded_as_the_run_is(tiny_run: Path, tmp_path: Path) -> None:
    run = Run(tiny_run)
    report = run.export(tmp_path / "out")
    assert report.architecture == "BertForPreTraining"
    back = load(tmp_path / "out")
    assert set(back.tasks) == {"mlm", "nsp"}
    assert back.predict("A [MASK].") == run.predict("A [MASK].")
    texts = ["one text", "a longer text of words", "two"]
    torch.testing.assert_close(back.embed(texts), run.model.embed(texts))
    alone = torch.cat([torch.from_numpy(back.embed(text)) for text in texts])
    torch.testing.assert_close(torch.from_numpy(back.embed(texts)), alone, atol=1e-5, rtol=1e-4)


def test_a_tokenizer_that_knows_more_than_the_encoder_is_refused(
    tiny_run: Path, tmp_path: Path
) -> None:
    Run(tiny_run).export(tmp_path / "out")
    tokenizer = load(tmp_path / "out").tokenizer
    tokens = [tokenizer.token(number) for number in range(tokenizer.vocab_size)]
    WordPieceTokenizer.from_vocabulary([*tokens, "onemore"]).save(tmp_path / "out")
    with pytest.raises(CheckpointError, match=r"its tokenizer has 301 ids, .* only 300 rows"):
        load(tmp_path / "out")


def test_embedding_is_the_mean_of_the_last_layer(tiny_run: Path) -> None:
    model = load(tiny_run)
    from bertlab.api.batch import pack

    ids = model.tokenizer.build_inputs(model.tokenizer.encode("some words"))[0]
    with torch.no_grad():
        expected = model.encoder(pack([ids]), all_layers=True).all_layers[-1].mean(0)
    torch.testing.assert_close(torch.from_numpy(model.embed("some words")[0]), expected)
    assert model.embed("some words", pool="none").shape == (len(ids), len(expected))
    for wrong, found in ((3, "number"), (["a", 3], "number"), ({"text": "a"}, "mapping")):
        with pytest.raises(DataError, match=rf"text \d: found {found}, expected a text"):
            model.embed(wrong)
    for unordered in ({"a", "b"}, b"a", pandas.DataFrame({"text": ["a"]})):
        with pytest.raises(DataError, match="expected a text, or several in their order"):
            model.embed(unordered)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"pool": "CLS"},
            "pool: found 'CLS', expected one of none, cls, mean; did you mean 'cls'?",
        ),
        (
            {"combine": "means"},
            "combine: found 'means', expected one of concat, sum, mean; did you mean 'mean'?",
        ),
        (
            {"window_pooling": "avg"},
            "window_pooling: found 'avg', expected one of mean, max, first",
        ),
        ({"batch_size": 0}, "batch_size: found 0, expected 1 or more"),
        ({"layers": -1}, "layers: found -1, expected a list, [-1]"),
        ({"layers": [9]}, "layers: found 9, but the encoder has 2 layers"),
    ],
)
def test_settings_of_an_embedding_are_checked(
    tiny_run: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(tiny_run).embed("some words", **settings)


def test_errors_are_those_of_the_catalogue(tiny_config: Path, tiny_run: Path) -> None:
    with pytest.raises(ConfigError, match="batch_siz: no such key; did you mean"):
        fit(tiny_config, {"data.batch_siz": 8})
    with pytest.raises(OutputError, match="already holds a run"):
        fit(tiny_config, {"run_dir": str(tiny_run)})
    with pytest.raises(ConfigError, match=r"bertlab\.study"):
        fit(tiny_config, {"seeds": 3})
    with pytest.raises(CheckpointError, match="no such run"):
        Run("nowhere")
    with pytest.raises(ConfigError, match="empty"):
        load(tiny_run).predict([""])
    with pytest.raises(DataError, match="a text or a pair"):
        load(tiny_run).predict([{"text": "a"}])


class Interrupt(Callback):
    """Ctrl-C after a step."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 4:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_to_go_on_with(
    tiny_config: Path, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "added_callbacks", lambda directory, config: [Interrupt()])
    run = fit(tiny_config, {"run_dir": str(tmp_path / "run")})
    assert not run.is_finished
    assert run.metrics["loss"] > 0  # of the evaluation at step 3
    monkeypatch.undo()
    again = run.resume()
    assert again.is_finished
    assert again.directory == run.directory
    ours, theirs = (
        read_run_checkpoint(each / "checkpoints" / "last.ckpt").state
        for each in (again.directory, tiny_run)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
