"""Several heads at once: against a plain PyTorch loop, exact resumption, and one head alone."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertForSequenceClassification, BertModel, BertTokenizerFast

from bertlab import load
from bertlab.api.batch import PackedBatch
from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.errors import CommandError, DataError, naming_head
from bertlab.training.cli import BertlabCLI, open_command
from bertlab_conformance.printing import printed_config

Command = Callable[..., tuple[int, str, str]]
COLORS = ("red", "blue", "green")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 rows of a color each, 32 pairs of texts with a number, 24 sentences of tagged words."""
    folder = tmp_path_factory.mktemp("rows")
    colors = [{"text": f"value {n} is {COLORS[n % 3]}", "label": COLORS[n % 3]} for n in range(60)]
    pairs = ["text_a\ttext_b\tlabel"]
    for n in range(32):
        pairs.append(f"the value is {n}\tthe {'value' if n % 2 else 'object'} is\t{n % 2 * 2.5}")
    tags = [f"{n} O\n{COLORS[n % 2]} B-COLOR\nin O\n" for n in range(24)]
    (folder / "colors.jsonl").write_text("".join(json.dumps(row) + "\n" for row in colors), "utf-8")
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", "utf-8")
    (folder / "tags.conll").write_text("\n".join(tags), "utf-8")
    return folder


def config(files: Path, run: Path, **changes: Any) -> dict[str, Any]:
    """Return a config of two heads, with changes by dotted key."""
    found: dict[str, Any] = {
        "seed_everything": 5,
        "model": {
            "init_from": str(run),
            "heads": {
                "color": "single_sentence",
                "nearness": {"name": "sentence_pair", "regression": True},
            },
            "optimizer": {"learning_rate": 3e-3},
        },
        "data": {
            "heads": {
                "color": {"source": str(files / "colors.jsonl"), "validation_fraction": 0.2},
                "nearness": {"source": str(files / "pairs.tsv"), "validation_fraction": 0.25},
            },
            "max_seq_length": 32,
            "batch_size": 8,
        },
        "trainer": {"accelerator": "cpu", "max_epochs": 2, "log_every_n_steps": 1},
    }
    return changed(found, **changes)


def changed(content: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Set keys of a config in place; two underscores stand for the dot in a name."""
    for key, value in changes.items():
        section = content
        *above, last = key.split("__")
        for part in above:
            section = section.setdefault(part, {})
        section[last] = value
    return content


def written(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    return path


@pytest.fixture(scope="module")
def run(files: Path, tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two heads that has learnt its colors."""
    folder = tmp_path_factory.mktemp("heads")
    changes: dict[str, Any] = {"trainer__max_epochs": 12, "checkpoint__save_top_k": -1}
    session = opened(written(folder / "c.yaml", config(files, tiny_run, **changes)), folder / "run")
    assert session.run() == 0
    return folder / "run"


def opened(path: Path, run: Path) -> BertlabCLI:
    return open_command("fit", read_request(["--config", str(path), "--run_dir", str(run)]))


def logged(run: Path, name: str) -> list[tuple[int, float]]:
    with next(run.glob("csv/**/metrics.csv")).open(encoding="utf-8") as file:
        rows = [(int(row["step"]), row.get(name, "")) for row in csv.DictReader(file)]
    return [(step, float(value)) for step, value in rows if value]


def last_weights(run: Path) -> dict[str, Tensor]:
    found = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    weights: dict[str, Tensor] = found["state_dict"]
    return weights


def padded(batch: PackedBatch) -> dict[str, Tensor]:
    """Return the batch in the form of transformers: ``(B, S)``."""
    ids = batch.input_ids.split(batch.cu_seqlens.diff().tolist())
    segments = batch.token_type_ids.split(batch.cu_seqlens.diff().tolist())
    return {
        "input_ids": nn.utils.rnn.pad_sequence(ids, batch_first=True),
        "token_type_ids": nn.utils.rnn.pad_sequence(segments, batch_first=True),
        "attention_mask": nn.utils.rnn.pad_sequence(
            [torch.ones_like(each) for each in ids], batch_first=True
        ),
    }


def test_losses_are_those_of_a_plain_loop(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    steps = 12
    content = config(
        files, tiny_run, trainer__max_steps=steps, trainer__max_epochs=-1,
        trainer__gradient_clip_val=0.5, model__optimizer__warmup_steps=0,
        model__optimizer__schedule="constant", model__optimizer__weight_decay=0.0,
    )  # fmt: skip
    session = opened(written(tmp_path / "c.yaml", content), tmp_path / "run")
    session.datamodule.trainer = session.trainer
    session.datamodule.train_dataloader()
    batches = [session.datamodule.training_steps[step] for step in range(steps)]
    layers = {name: nn.Linear(32, rows) for name, rows in (("color", len(COLORS)), ("nearness", 1))}
    for name, layer in layers.items():
        start = session.model.heads[name].state_dict()
        layer.load_state_dict({key.rpartition(".")[2]: start[key].clone() for key in start})
    assert session.run() == 0

    code, _, err = bertlab("export", tiny_run, tmp_path / "hf")
    assert code == 0, err
    bert = BertModel.from_pretrained(tmp_path / "hf").train()
    trained = [*bert.parameters(), *(p for each in layers.values() for p in each.parameters())]
    optimizer = torch.optim.AdamW(trained, lr=3e-3, eps=1e-6, weight_decay=0.0)
    for step, (batch,) in enumerate(batches):
        ((name, _),) = batch.counts.items()
        logits = layers[name](bert(**padded(batch)).pooler_output)
        truth = batch.fields["label"]
        loss = (
            F.cross_entropy(logits, truth)
            if name == "color"
            else F.mse_loss(logits.squeeze(-1), truth)
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 0.5)
        optimizer.step()
        found = dict(logged(tmp_path / "run", f"train/{name}/loss"))
        assert found[step] == pytest.approx(loss.item(), abs=1e-4), (step, name)
    names = [next(iter(batch.counts)) for (batch,) in batches]
    assert len(set(names[:6])) == 2  # both have been trained


@pytest.mark.slow
def test_each_head_has_its_metrics_and_its_best_figure(run: Path, bertlab: Command) -> None:
    results = json.loads((run / "results.json").read_text())
    assert results["color/accuracy"] > 0.9
    assert {"color/loss", "nearness/pearson", "nearness/loss"} <= results.keys()
    judged = results["color/accuracy"], results["nearness/pearson"]
    assert results["heads/mean"] == pytest.approx(sum(judged) / 2)
    assert results["loss"] == pytest.approx(results["color/loss"] + results["nearness/loss"])

    best = json.loads((run / "best.json").read_text())
    assert best["monitor"] == "val/heads/mean"
    for name, metric in (("color", "accuracy"), ("nearness", "pearson")):
        curve = dict(logged(run, f"val/{name}/{metric}"))
        own = best["heads"][name]
        assert own["value"] == pytest.approx(max(curve.values()), abs=1e-6)
    means = dict(logged(run, "val/heads/mean"))
    assert best["results"]["heads/mean"] == pytest.approx(max(means.values()), abs=1e-6)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["labels"] == {"color": sorted(COLORS), "nearness": None}
    assert manifest["data"].keys() == {
        f"{name}/{split}" for name in ("color", "nearness") for split in ("train", "validation")
    }


@pytest.mark.slow
def test_an_epoch_reads_every_row_of_every_head_once(
    files: Path, tiny_run: Path, tmp_path: Path
) -> None:
    session = opened(written(tmp_path / "c.yaml", config(files, tiny_run)), tmp_path / "run")
    data = session.datamodule
    data.trainer = session.trainer
    data.train_dataloader()
    for epoch in range(2):
        seen: dict[str, list[int]] = {"color": [], "nearness": []}
        for step in range(data.steps_per_epoch()):
            (batch,) = data.training_steps[epoch * data.steps_per_epoch() + step]
            ((name, count),) = batch.counts.items()
            seen[name] += batch.fields["row"].tolist()
            assert count == len(batch)
        assert sorted(seen["color"]) == list(range(48))
        assert sorted(seen["nearness"]) == list(range(24))


@pytest.mark.nightly
def test_resuming_in_the_middle_of_an_epoch_is_exact_with_any_number_of_workers(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    content = config(
        files, tiny_run, trainer__val_check_interval=2, trainer__accumulate_grad_batches=2,
        data__mixing={"temperature": 3.0}, checkpoint__save_top_k=-1,
        model__encoder={"hidden_dropout_prob": 0.1},
    )  # fmt: skip
    path = written(tmp_path / "c.yaml", content)
    assert bertlab("fit", "--config", path, "--run_dir", tmp_path / "whole")[0] == 0
    middle = tmp_path / "whole" / "checkpoints" / "step-3.ckpt"
    one = last_weights(tmp_path / "whole")
    for workers in (0, 2):
        run = tmp_path / str(workers)
        again = ("--ckpt_path", middle, "--run_dir", run, "--data.num_workers", workers)
        code, _, err = bertlab("fit", *again)
        assert code == 0, err
        two = last_weights(run)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) for name in one)
        scores = [
            json.loads((each / "results.json").read_text()) for each in (tmp_path / "whole", run)
        ]
        assert scores[0] == scores[1]


@pytest.mark.nightly
def test_two_processes_equal_one(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    from tests.training.test_devices import assert_same_end, fit_by_two

    path = written(tmp_path / "c.yaml", config(files, tiny_run))
    assert bertlab("fit", "--config", path, "--run_dir", tmp_path / "one")[0] == 0
    fit_by_two("auto", tmp_path / "two", "--config", path)
    assert_same_end(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_one_head_predicts_and_is_exported_as_a_single_one(
    run: Path, files: Path, tmp_path: Path, bertlab: Command
) -> None:
    texts = ["value 7 is red", "it is blue in this object"]
    code, out, err = bertlab("predict", "--ckpt_path", run, "--head", "color", "--text", *texts[:1])
    assert code == 0, err
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert set(row["scores"]) == set(COLORS)
    rows = load(run, "color").predict(texts)
    assert rows[0]["scores"] == pytest.approx(row["scores"], abs=1e-5)
    assert load(run, "nearness").predict([("the value is 3", "the value is")])[0].keys() == {
        "score"
    }

    code, _, err = bertlab("export", run, tmp_path / "hf", "--head", "color")
    assert code == 0, err
    model = BertForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    tokenizer = BertTokenizerFast.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    names = model.config.id2label
    for found, scores in zip(rows, logits.softmax(-1), strict=True):
        expected = {names[n]: float(score) for n, score in enumerate(scores)}
        assert found["scores"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_an_export_equals_that_of_a_single_head_with_the_same_weights(
    run: Path, files: Path, tmp_path: Path, bertlab: Command
) -> None:
    """The weights are put into the checkpoint of a run that has one head and knows no other."""
    alone = tmp_path / "alone"
    best = json.loads((run / "best.json").read_text())["checkpoint"]
    theirs = torch.load(run / "checkpoints" / best, weights_only=True)["state_dict"]
    code, _, err = bertlab(
        "fit", "--model.init_from", run, "--model.head", "single_sentence", "--data.source",
        files / "colors.jsonl", "--data.max_seq_length", 32, "--trainer.max_steps", 1,
        "--trainer.accelerator", "cpu", "--run_dir", alone, "--seed_everything", 1,
    )  # fmt: skip
    assert code == 0, err
    file = alone / "checkpoints" / "last.ckpt"
    content = torch.load(file, weights_only=True)
    for name in content["state_dict"]:
        content["state_dict"][name] = theirs[name.replace("single_sentence", "color")]
    torch.save(content, file)
    for source, folder, more in ((run, "several", ["--head", "color"]), (file, "single", [])):
        code, _, err = bertlab("export", source, tmp_path / folder, *more)
        assert code == 0, err
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        several, single = (tmp_path / folder / name for folder in ("several", "single"))
        assert several.read_bytes() == single.read_bytes(), name


@pytest.mark.slow
def test_heads_are_scored_together_or_one_by_one(run: Path, files: Path, bertlab: Command) -> None:
    code, out, err = bertlab("validate", "--ckpt_path", run)
    assert code == 0, err
    assert "color" in out
    assert "nearness" in out
    color = f"--data.heads.color.test={files / 'colors.jsonl'}"
    nearness = f"--data.heads.nearness.test={files / 'pairs.tsv'}"
    code, out, err = bertlab("test", "--ckpt_path", run, color, nearness)
    assert code == 0, err
    assert "heads" in out
    code, out, err = bertlab("test", "--ckpt_path", run, color)
    assert code == 0, err
    assert "found no data.heads.nearness.test: not scored" in err
    assert "pearson" not in out
    code, out, err = bertlab(
        "test", "--ckpt_path", run, "--head", "nearness", "--data.test", files / "pairs.tsv"
    )
    assert code == 0, err
    assert "pearson" in out
    assert "accuracy" not in out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "export"])
def test_one_of_several_heads_has_to_be_named(
    command: str, run: Path, tmp_path: Path, bertlab: Command
) -> None:
    given: list[object] = ["export", run, tmp_path / "out"]
    if command == "predict":
        given = ["predict", "--ckpt_path", run, "--text", "red"]
    code, _, err = bertlab(*given)
    assert code == 2
    assert "--head: found none, expected one of the heads of" in err
    assert "color, nearness" in err
    code, _, err = bertlab(*given, "--head", "colour")
    assert code == 2
    assert "--head: found 'colour'" in err
    assert "did you mean 'color'?" in err
    with pytest.raises(CommandError, match=r"several heads, expected one: load\(…, head=NAME\)"):
        load(run).predict("red")


@pytest.mark.slow
def test_a_head_goes_on_in_a_run_of_several(
    run: Path, files: Path, tmp_path: Path, bertlab: Command
) -> None:
    """A warm start finds each head again by its name."""
    content = config(files, run, trainer__max_epochs=1, trainer__max_steps=1)
    path = written(tmp_path / "c.yaml", content)
    code, out, err = bertlab("fit", "--config", path, "--run_dir", tmp_path / "again")
    assert code == 0, err
    assert "newly initialised" not in out


@pytest.mark.slow
def test_the_best_checkpoint_may_be_that_of_one_head(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    content = config(files, tiny_run, checkpoint__monitor="nearness", trainer__max_epochs=2)
    path = written(tmp_path / "c.yaml", content)
    code, _, err = bertlab("fit", "--config", path, "--run_dir", tmp_path / "run")
    assert code == 0, err
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    assert best["monitor"] == "val/nearness/pearson"
    curve = dict(logged(tmp_path / "run", "val/nearness/pearson"))
    assert best["results"]["nearness/pearson"] == pytest.approx(max(curve.values()), abs=1e-6)


@pytest.mark.slow
def test_a_file_over_another_changes_heads(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    """A later file adds a head and takes one out, with its data; an argument changes a setting."""
    base = written(tmp_path / "base.yaml", config(files, tiny_run, trainer__max_epochs=1))
    over: dict[str, Any] = {
        "model": {"heads": {"nearness": None, "tags": "tagging"}},
        "data": {"heads": {"tags": {"source": str(files / "tags.conll")}}},
    }
    second = written(tmp_path / "second.yaml", over)
    code, _, err = bertlab(
        "fit", "--config", base, "--config", second, "--run_dir", tmp_path / "run",
        "--model.heads.color.dropout", "0.25", "--data.heads.tags", "{validation_fraction: 0.3}",
        "--data.mixing", "{weights: {color: 1, tags: 1}}",
    )  # fmt: skip
    assert code == 0, err
    found = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert found["model"]["heads"].keys() == found["data"]["heads"].keys() == {"color", "tags"}
    assert found["model"]["heads"]["color"]["dropout"] == 0.25
    assert found["data"]["heads"]["tags"]["validation_fraction"] == 0.3
    assert found["data"]["mixing"] == {"temperature": None, "weights": {"color": 1, "tags": 1}}
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert "tags/f1" in results
    assert not any(name.startswith("nearness") for name in results)


@pytest.mark.first_fast
@pytest.mark.parametrize("form", [(), ("skip_default",)])
def test_a_printed_config_repeats_it(
    form: tuple[str, ...], files: Path, tiny_run: Path, tmp_path: Path
) -> None:
    content = config(files, tiny_run, data__mixing={"weights": {"color": 1, "nearness": 2.5}})
    request = read_request(["--config", str(written(tmp_path / "c.yaml", content))])
    again = tmp_path / "again.yaml"
    again.write_text(printed_config(request, form), "utf-8")
    found = resolve_request(read_request(["--config", str(again)]))
    assert found == resolve_request(request)
    assert list(found["data"]["heads"]) == ["color", "nearness"]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (
        {"model__heads__color": "single_sentense"},
        "did you mean 'single_sentence'?",
    ),
    ({"model__heads__color": {"dropout": 0.1}}, "model.heads.color.name: found none"),
    ({"model__heads__color": {"name": "single_sentence", "dropot": 0.1}}, "heads.color.dropout"),
    ({"model__heads": ["single_sentence"]}, "model.heads: found ['single_sentence']"),
    ({"model__heads__a-b": "single_sentence"}, "model.heads: found the name 'a-b'"),
    ({"model__heads__loss": "single_sentence"}, "model.heads: found the name 'loss'"),
    ({"model__head": "single_sentence"}, "model.head and model.heads: found"),
    (
        {"data__mixing": {"objectives": 0.5}},
        "data.mixing.objectives: found 0.5, but there are none",
    ),
    ({"data__objectives": {"corpus": "x"}}, "data.objectives: found text of objectives, but no"),
    ({"model__objectives": ["mlm"]}, "data.objectives.corpus: found none; expected"),
    (
        {"model__heads__color": {"name": "single_sentence", "class_weights": {"pink": 2.0}}},
        "model.heads.color.class_weights",
    ),
    ({"data__heads__colour": {"source": "x"}}, "data.heads.colour: model.heads has no colour"),
    ({"data__heads__colour": {"source": "x"}}, "did you mean 'color'?"),
    ({"data__heads__color": "colors.jsonl"}, "data.heads.color: found 'colors.jsonl', expected"),
    ({"data__heads__color": {}}, "data.heads.color.source: found none"),
    ({"data__heads__color": None}, "data.heads.color.source: found none"),
    ({"data__heads__color__source": "no.jsonl"}, "no.jsonl: no such file"),
    ({"data__heads__color__columns": {"txt": "a"}}, "data.heads.color.columns: color has no"),
    ({"data__heads__color__format": "jsnl"}, "data.heads.color.format: found 'jsnl'; did you"),
    ({"data__source": "colors.jsonl"}, "data.source: no such key"),
    ({"data__mixing": {"temperature": 0}}, "data.mixing.temperature: found 0"),
    ({"data__mixing": {"weights": {"color": 1}}}, "data.mixing.weights.nearness: found none"),
    ({"data__mixing": {"temprature": 2}}, "did you mean 'data.mixing.temperature'?"),
    ({"checkpoint__monitor": "nearnes"}, "checkpoint.monitor: found 'nearnes'"),
    ({"checkpoint__monitor": "val/color/acuracy"}, "did you mean 'val/color/accuracy'?"),
    ({"keep_predictions": True}, "keep_predictions: found true with model.heads"),
    ({"seed": {"masks": 3}}, "seed.masks: found 3"),
]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_a_mistake_is_one_message_and_leaves_nothing(
    changes: dict[str, Any], message: str, files: Path, tiny_run: Path, tmp_path: Path,
    bertlab: Command,
) -> None:  # fmt: skip
    path = written(tmp_path / "c.yaml", config(files, tiny_run, **changes))
    code, _, err = bertlab("fit", "--config", path, "--run_dir", tmp_path / "run")
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "value"), [("label_separator", "/"), ("header", False), ("doubtful", "accept")]
)
def test_how_rows_are_read_is_a_key_of_each_head(
    key: str, value: object, files: Path, tiny_run: Path
) -> None:
    content = config(files, tiny_run, **{f"data__heads__color__{key}": value})
    resolved = resolve_request(read_request([], base=content))["data"]
    assert resolved["heads"]["color"][key] == value
    assert resolved["heads"]["nearness"][key] is None
    assert key not in resolved
    with (
        pytest.raises(DataError, match=rf"^a\.csv:2: data\.heads\.color\.{key}: found"),
        naming_head("color"),
    ):
        raise DataError(f"a.csv:2: data.{key}: found")


@pytest.mark.slow
def test_heads_that_do_not_go_together_are_refused(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    own = config(files, tiny_run)["data"]["heads"]["color"]
    twice: dict[str, Any] = {
        "model__heads": {"a": "single_sentence", "b": "single_sentence"},
        "data__heads": {"a": own, "b": own},
    }
    fixed: dict[str, Any] = {
        "model__heads__tags": {"name": "feature_tagging", "layers": [-1]},
        "data__heads__tags": {"source": str(files / "tags.conll")},
    }
    for changes, message in (
        (twice, "data.heads.a and data.heads.b: have the same training rows"),
        (fixed, "model.heads.tags: keeps the encoder fixed, and color, nearness trains it"),
    ):
        path = written(tmp_path / "c.yaml", config(files, tiny_run, **changes))
        code, _, err = bertlab("fit", "--config", path, "--run_dir", tmp_path / "run")
        assert code == 2
        assert message in err


@pytest.mark.slow
def test_labels_that_changed_stop_a_resumption_by_name(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    rows = tmp_path / "colors.jsonl"
    rows.write_bytes((files / "colors.jsonl").read_bytes())
    content = config(files, tiny_run, trainer__max_epochs=1)
    content["data"]["heads"]["color"] = {"source": str(rows), "validation_fraction": 0.2}
    path = written(tmp_path / "c.yaml", content)
    assert bertlab("fit", "--config", path, "--run_dir", tmp_path / "run")[0] == 0
    rows.write_text(rows.read_text("utf-8").replace("green", "grey"), "utf-8")
    code, _, err = bertlab("fit", "--ckpt_path", tmp_path / "run")
    assert code == 2
    assert "rows of color/train" in err
    assert str(rows) in err
    assert "rows of nearness" not in err


@pytest.mark.slow
def test_directions_that_differ_need_a_head_that_decides(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertlab.heads.sentences import SingleSentence

    monkeypatch.setattr(SingleSentence, "monitor", ("loss", "min"))
    path = written(tmp_path / "c.yaml", config(files, tiny_run, trainer__max_epochs=1))
    code, _, err = bertlab("fit", "--config", path, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "color by loss (min), nearness by pearson (max)" in err
    code, _, err = bertlab(
        "fit", "--config", path, "--run_dir", tmp_path / "run", "--checkpoint.monitor", "color"
    )
    assert code == 0, err
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    assert best["monitor"] == "val/color/loss"
    assert "heads/mean" not in best["results"]
