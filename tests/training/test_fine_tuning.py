"""Fine-tuning through the command: every head on a small file, from a pre-trained run."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

Command = Callable[..., tuple[int, str, str]]
COLORS = ("red", "blue")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small labelled files of every kind, 40 rows each."""
    folder = tmp_path_factory.mktemp("rows")
    pairs = ["text_a,text_b,label"]
    singles, choices, questions = [], [], []
    tags: list[str] = []
    for number in range(40):
        color = COLORS[number % 2]
        pairs.append(f'"the {color} statement, {number}",it is {color},{color}')
        singles.append({"text": f"the value {number} is {color}", "label": color})
        choices.append({"context": f"it is {color}", "choices": list(COLORS), "label": number % 2})
        context = f"The value {number} is {color} in this object."
        start = context.index(color)
        question = {"id": f"q{number}", "question": "What is it?", "answers": []}
        question["answers"] = [{"text": color, "answer_start": start}]
        questions.append({"context": context, "qas": [question]})
        tags += [f"{number} O\n{color} I-{color.upper()}\nin O\n"]
    (folder / "pairs.csv").write_text("\n".join(pairs) + "\n", "utf-8")
    for name, rows in (("singles", singles), ("choices", choices)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    (folder / "tags.conll").write_text("\n".join(tags), "utf-8")
    squad = {"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}
    with gzip.open(folder / "squad.json.gz", "wt", encoding="utf-8") as file:
        json.dump(squad, file)
    return folder


def arguments(run: Path, files: Path, head: str, source: str, *more: str) -> list[str]:
    return [
        *("--model.init_from", str(run), "--model.head", head),
        *("--data.source", str(files / source), "--data.max_seq_length", "32"),
        *("--data.batch_size", "8", "--trainer.accelerator", "cpu", "--seed_everything", "5"),
        *("--model.optimizer.learning_rate", "3e-3", "--trainer.log_every_n_steps", "1"),
        *more,
    ]


TASKS = [
    ("single_sentence", "singles.jsonl", "accuracy"),
    ("sentence_pair", "pairs.csv", "accuracy"),
    ("multiple_choice", "choices.jsonl", "accuracy"),
    ("tagging", "tags.conll", "f1"),
    ("span", "squad.json.gz", "exact_match"),
]


FAST = ("single_sentence", "span")


@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("head", "source", "metric"),
    [each if each[0] in FAST else pytest.param(*each, marks=pytest.mark.slow) for each in TASKS],
)
def test_a_head_learns_and_comes_back(
    head: str, source: str, metric: str, files: Path, tiny_run: Path, tmp_path: Path,
    bertlab: Command,
) -> None:  # fmt: skip
    run = tmp_path / "run"
    given = arguments(tiny_run, files, head, source, "--trainer.max_epochs", "12")
    code, out, err = bertlab("fit", *given, "--run_dir", run)
    assert code == 0, err
    assert f"newly initialised: tasks.{head}." in out
    results = json.loads((run / "results.json").read_text())
    if head != "multiple_choice":  # a hidden size of 32 does not learn it in seconds
        assert results[f"{head}/{metric}"] > 0.9

    code, out, err = bertlab("validate", "--ckpt_path", run)
    assert code == 0, err
    code, out, err = bertlab("test", "--ckpt_path", run, "--data.test", files / source)
    assert code == 0, err
    assert metric in out

    code, out, err = bertlab("predict", "--ckpt_path", run, "--data.input", files / source)
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 40
    assert all(row["gold"] for row in rows)
    if head == "single_sentence":
        correct = sum(row["label"] == row["gold"]["label"] for row in rows)
        assert correct > 36
        assert set(rows[0]["scores"]) == set(COLORS)


def test_predictions_come_in_the_order_of_the_input(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    given = arguments(tiny_run, files, "single_sentence", "singles.jsonl")
    assert bertlab("fit", *given, "--trainer.max_epochs", "1", "--run_dir", run)[0] == 0
    assert json.loads((run / "manifest.json").read_text())["data"].keys() == {"train", "validation"}
    texts = [f"{'very ' * (number % 7)}red number {number}" for number in range(600)]
    source = tmp_path / "new.txt"
    output = tmp_path / "out.jsonl"
    scores = []
    for given_texts in (texts, texts[::-1]):  # other neighbours in other batches
        source.write_text("\n".join(given_texts) + "\n", "utf-8")
        code, _, err = bertlab(
            "predict", "--ckpt_path", run, "--data.input", source, "--output", output
        )
        assert code == 0, err
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        assert [row["text"] for row in rows] == given_texts
        scores.append({row["text"]: row["scores"] for row in rows})
    for text in texts:
        assert scores[0][text] == pytest.approx(scores[1][text], abs=1e-5)


@pytest.mark.slow
def test_resuming_in_the_middle_of_an_epoch_is_exact(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    given = arguments(
        tiny_run, files, "sentence_pair", "pairs.csv", "--trainer.val_check_interval", "3",
        "--model.encoder.hidden_dropout_prob", "0.1", "--checkpoint.save_top_k", "-1",
        "--trainer.max_epochs", "2",
    )  # fmt: skip
    assert bertlab("fit", *given, "--run_dir", tmp_path / "whole")[0] == 0
    middle = tmp_path / "whole" / "checkpoints" / "step-3.ckpt"
    again = tmp_path / "again"
    code, _, err = bertlab("fit", "--ckpt_path", middle, "--run_dir", again)
    assert code == 0, err
    one, two = (
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in (tmp_path / "whole", again)
    )
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow
def test_from_scratch_takes_sizes_and_tokenizer_but_no_weights(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    given = arguments(tiny_run, files, "single_sentence", "singles.jsonl")
    code, out, err = bertlab(
        "fit", *given, "--model.from_scratch", "true", "--trainer.max_epochs", "1",
        "--run_dir", tmp_path / "run",
    )  # fmt: skip
    assert code == 0, err
    assert "initialised from" not in out


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--data.columns", "{text_c: text}"), "single_sentence has no column 'text_c'; did you"),
        (("--data.columns", "{text: txet}"), "did you mean 'text'?"),
        (("--data.format", "jsnl"), "did you mean 'jsonl'?"),
        (("--data.max_seq_length", "65"), "max_position_embeddings"),
        (("--model.objectives", "[mlm]"), "expected one of the two keys"),
        (("--model.head", "single_sentense"), "did you mean 'single_sentence'?"),
        (
            (
                "--trainer.callbacks",
                "[{class_path: lightning.pytorch.callbacks.EarlyStopping, "
                "init_args: {monitor: val/accuracy}}]",
            ),
            "EarlyStopping.monitor: found 'val/accuracy'; did you mean 'val/",
        ),
        (("--checkpoint.monitor", "val/single_sentence/acuracy"), "did you mean 'val/single_sent"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing(
    change: tuple[str, str], message: str, files: Path, tiny_run: Path, tmp_path: Path,
    bertlab: Command,
) -> None:  # fmt: skip
    given = arguments(tiny_run, files, "single_sentence", "singles.jsonl", *change)
    given += ["--trainer.max_epochs", "1"]
    code, _, err = bertlab("fit", *given, "--run_dir", tmp_path / "run")
    assert code == 2
    assert message in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
@pytest.mark.parametrize("head", ["single_sentence", "tagging"])
def test_a_head_that_nobody_trained_is_said_to_be_so(
    command: str, head: str, files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    rows = {"single_sentence": '{"text": "a", "label": "red"}', "tagging": "Ann B-PER\nran O\n"}
    place = tmp_path / ("rows.conll" if head == "tagging" else "rows.jsonl")
    place.write_text(f"{rows[head]}\n" * 4, "utf-8")
    given = arguments(tiny_run, files, head, str(place), "--data.test", str(place))
    # which predict, that reads no such rows, does not take
    texts = ("--data.input", place) if command == "predict" else ("--data.validation", place)
    code, _, err = bertlab(command, *given, *texts)
    assert code == 2
    assert f"last.ckpt: has no labels for {head}, so predictions would be random; fine-" in err


def test_an_unknown_label_in_the_validation_rows_is_named(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    dev = tmp_path / "dev.jsonl"
    dev.write_text('{"text": "a", "label": "red"}\n{"text": "b", "label": "bleu"}\n', "utf-8")
    given = arguments(tiny_run, files, "single_sentence", "singles.jsonl")
    code, _, err = bertlab("fit", *given, "--data.validation", dev, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "dev.jsonl:2: label: found 'bleu'" in err
    assert "did you mean 'blue'?" in err


@pytest.mark.slow
def test_a_tag_that_no_training_row_has_is_declared(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    (tmp_path / "train.conll").write_text("Ann B-PER\nran O\n\nIt O\nran O\n" * 4, "utf-8")
    (tmp_path / "dev.conll").write_text("Ann B-PER\nBell I-PER\n", "utf-8")
    given = arguments(tiny_run, files, "tagging", str(tmp_path / "train.conll"))
    given += ["--data.validation", str(tmp_path / "dev.conll")]
    given += ["--trainer.max_epochs", "1", "--run_dir", str(tmp_path / "run")]
    code, _, err = bertlab("fit", *given)
    assert code == 2
    assert "dev.conll:1: tags: found 'I-PER'" in err
    assert "data.label_names" in err
    code, _, err = bertlab("fit", *given, "--data.label_names", "[O, B-PER, I-PER]")
    assert code == 0, err
    assert "tagging/f1" in json.loads((tmp_path / "run" / "results.json").read_text())


@pytest.mark.slow
def test_seeds_give_mean_and_deviation_and_each_its_best_checkpoint(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    given = arguments(tiny_run, files, "single_sentence", "singles.jsonl")
    given = [each for each in given if each not in ("--seed_everything", "5")]
    given += ["--trainer.max_epochs", "2", "--run_dir", str(tmp_path / "runs")]
    code, out, err = bertlab("fit", *given, "--seeds", "2")
    assert code == 0, err
    assert "2 seeds" in out
    found = json.loads((tmp_path / "runs" / "repeated.json").read_text())
    runs = [tmp_path / "runs" / f"seed-{seed}" for seed in (1, 2)]
    losses = [json.loads((run / "results.json").read_text())["loss"] for run in runs]
    assert found["last"]["loss"]["mean"] == pytest.approx(sum(losses) / 2)
    assert found["last"]["loss"]["deviation"] == pytest.approx(abs(losses[0] - losses[1]) / 2**0.5)
    for run in runs:
        best = json.loads((run / "best.json").read_text())
        assert best["monitor"] == "val/single_sentence/accuracy"
        assert (run / "checkpoints" / best["checkpoint"]).is_file()


@pytest.mark.nightly
def test_a_config_file_can_ask_for_the_run_from_scratch_beside_its_own(
    files: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("against_scratch: true\n", "utf-8")
    given = arguments(tiny_run, files, "single_sentence", "singles.jsonl")
    given += ["--trainer.max_epochs", "2"]
    run = tmp_path / "run"
    code, out, err = bertlab("fit", "--config", config, *given, "--run_dir", run)
    assert code == 0, err
    assert f"{run}, best step of each run" in out
    found = json.loads((run / "repeated.json").read_text())
    for start, directory in (("pre-trained", run), ("from-scratch", run / "from-scratch")):
        results = json.loads((directory / "results.json").read_text())
        assert found[start]["last"]["loss"] == {"mean": results["loss"], "deviation": None}
        assert (directory / "run.html").is_file()
    assert found["pre-trained"] != found["from-scratch"]


def test_scratch_needs_something_to_be_compared_with(tiny_config: Path, bertlab: Command) -> None:
    code, _, err = bertlab("fit", "--config", tiny_config, "--against_scratch", "true")
    assert code == 2
    assert "against_scratch: found no pre-trained model" in err


@pytest.mark.parametrize("seeds", ["0", "[]", "[1, 1]", "many", "[-1]"])
def test_seeds_that_are_none_are_refused(seeds: str, tiny_config: Path, bertlab: Command) -> None:
    code, _, err = bertlab("fit", "--config", tiny_config, "--seeds", seeds)
    assert code == 2
    assert "seeds: found" in err
