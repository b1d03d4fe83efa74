"""The page of a run: what it shows is what the run has, and it loads and runs nothing."""

import csv
import json
import shutil
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertlab.api import BertlabError
from bertlab.extend import as_mistakes
from bertlab_pages.run_page import run_page
from bertlab_pages.run_records import DIAGNOSIS, SAMPLES, read_samples
from tests.conftest import Command

HOSTILE = '<script src="https://x.example/a.js">alert(1)</script>'


class Page(HTMLParser):
    """Rows of tables, texts, tags and addresses of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: dict[str, int] = defaultdict(int)
        self.addresses: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href", "action")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip()


def test_the_page_of_a_pre_training(tiny_run: Path) -> None:
    page = Page(tiny_run / "run.html")
    results = json.loads((tiny_run / "results.json").read_text("utf-8"))
    shown = {tuple(row[:2]): row[2] for row in page.rows if len(row) == 4}
    assert shown["mlm", "accuracy"] == f"{results['mlm/accuracy']:.1%}"
    assert shown["nsp", "loss"] == f"{results['nsp/loss']:,.3f}"
    assert page.tags["figure"] >= 6  # loss and scores of both tasks, learning rate, norm, speed
    assert page.tags["title"] > 8  # what the points of the curves say
    text = (tiny_run / "run.html").read_text("utf-8")
    assert text.index("<summary>step 6<") < text.index("<summary>step 3<")
    assert " ##" not in text.split("<h2>The run")[0].replace(">##", "")  # words are joined
    assert "refresh" not in text
    assert all(address.startswith("#") for address in page.addresses)


def test_samples_are_the_held_out_tokens_and_what_is_predicted(tiny_run: Path) -> None:
    rows = read_samples(tiny_run / SAMPLES)
    assert {row["step"] for row in rows} == {3, 6}
    assert {row["task"] for row in rows} == {"mlm"}
    first, last = ([row for row in rows if row["step"] == step] for step in (3, 6))
    assert [row["text"] for row in first] == [row["text"] for row in last]
    assert [row["truth"] for row in first] == [row["truth"] for row in last]
    for row in rows:
        truth, predicted = row["truth"].split(" "), row["prediction"].split(" ")
        assert len(truth) == len(predicted) >= row["text"].split(" ").count("[MASK]") > 0


def test_a_line_that_was_cut_and_steps_that_came_again(tmp_path: Path) -> None:
    row = {"step": 3, "task": "mlm", "sample": "a", "text": "b", "truth": "c", "prediction": "old"}
    lines = [json.dumps(row), json.dumps(row | {"prediction": "new"}), '{"step": 6, "ta']
    lines += ["[]", json.dumps(row | {"sample": {}}), json.dumps({"step": 6})]
    (tmp_path / SAMPLES).write_text("\n".join(lines), "utf-8")
    assert read_samples(tmp_path / SAMPLES) == [row | {"prediction": "new"}]
    assert read_samples(tmp_path / "none") == []


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for number in range(40):
            writer.writerow([f"text {number} {HOSTILE}", HOSTILE if number % 2 else "plain"])
    return path


def test_each_mask_stands_as_truth_and_guess_in_its_place(tmp_path: Path, tiny_run: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    row = {
        "step": 6, "task": "mlm", "sample": "a",
        "text": "[CLS] the [MASK] ##s [SEP] sat down [SEP]",
        "truth": "cat sat", "prediction": "cat <ran>", "places": [2, 5],
    }  # fmt: skip
    (tmp_path / "run" / SAMPLES).write_text(json.dumps(row), "utf-8")
    page = " ".join(run_page(tmp_path / "run").split())
    assert (
        'the <mark class="right">cat</mark>s · <mark>sat → <span class="wrong">&lt;ran&gt;</span>'
        "</mark> down"
    ) in page


@pytest.mark.usefixtures("drawn")
def test_a_run_that_goes_on_is_read_again_and_says_how_far_it_is(
    tmp_path: Path, tiny_run: Path
) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    page = run_page(tmp_path / "run", "running")
    assert '<meta http-equiv="refresh" content="10">' in page
    assert "running: step 6 of 6" in page
    assert "nsp" in page  # the last evaluation's figures
    assert "refresh" not in run_page(tmp_path / "run", "stopped")


@pytest.mark.slow
def test_a_run_that_goes_on_at_its_end_keeps_its_page(
    tmp_path: Path, tiny_run: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    before = json.loads((run / DIAGNOSIS).read_text("utf-8"))
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 0
    assert "left out" not in error
    after = json.loads((run / DIAGNOSIS).read_text("utf-8"))
    assert after["data"] == before["data"]
    assert after["seconds"] >= before["seconds"]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"tasks": {}}',
        '{"tasks": {"a": 1}, "data": []}',
        '{"tasks": {"a": {"kind": "x"}}, "data": []}',
    ],
)
def test_a_damaged_diagnosis_is_named(content: str, tmp_path: Path, tiny_run: Path) -> None:
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "run" / DIAGNOSIS).write_text(content, "utf-8")
    with pytest.raises(BertlabError, match=DIAGNOSIS), as_mistakes():
        run_page(tmp_path / "run")


@pytest.mark.slow
def test_rows_of_a_head_are_shown_with_what_predict_says(
    rows_file: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    config: dict[str, Any] = {
        "seed_everything": 1,
        "model": {"init_from": str(tiny_run), "head": "single_sentence"},
        "data": {"source": str(rows_file), "max_seq_length": 32, "batch_size": 8},
        "trainer": {"max_epochs": 2, "accelerator": "cpu", "log_every_n_steps": 1},
    }
    file, run = tmp_path / "f.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(config), "utf-8")
    named = ("--task_name", "<b>sentiment")
    code, _, error = bertlab("fit", "--config", file, "--run_dir", run, *named)
    assert code == 0, error
    samples = read_samples(run / SAMPLES)
    last = [row for row in samples if row["step"] == max(each["step"] for each in samples)]
    assert len(last) > 1
    checkpoint = run / "checkpoints" / "last.ckpt"
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in last), "utf-8")
    code, printed, error = bertlab("predict", "--ckpt_path", checkpoint, "--input", texts)
    assert code == 0, error
    predicted = [json.loads(line)["label"] for line in printed.splitlines()]
    assert [row["prediction"] for row in last] == predicted
    assert {row["truth"] for row in last} <= {HOSTILE, "plain"}
    page = Page(run / "run.html")
    assert page.tags["script"] == 1  # the one that sorts tables
    assert not any("example" in address for address in page.addresses)
    assert any(HOSTILE in cell for row in page.rows for cell in row)
    text = (run / "run.html").read_text("utf-8")
    assert "Where &lt;b&gt;sentiment is wrong" in text
    assert "&gt;alert(1)&lt;/script" in text  # in the worst rows, as text
    found = json.loads((run / DIAGNOSIS).read_text("utf-8"))["tasks"]["single_sentence"]
    assert found["rows"] == found["all_rows"] == 4
    results = json.loads((run / "results.json").read_text("utf-8"))
    assert 1 - found["wrong"] / 4 == pytest.approx(results["single_sentence/accuracy"])
    assert found["worst"][0]["where"].startswith(str(rows_file))
    assert "task_name" not in (run / "config.yaml").read_text("utf-8")


@pytest.mark.slow
def test_a_head_whose_rows_cannot_be_shown_ends_no_run(
    rows_file: Path,
    tiny_run: Path,
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("odd rows")

    monkeypatch.setattr("bertlab_pages.run_diagnosis.diagnose", fail)
    code, _, error = bertlab(
        *("fit", "--model.init_from", tiny_run, "--model.head", "single_sentence"),
        *("--data.train", rows_file, "--data.max_seq_length", "32", "--data.batch_size", "8"),
        *("--trainer.max_epochs", "1", "--trainer.accelerator", "cpu", "--run_dir", tmp_path / "r"),
    )
    assert code == 0
    assert "run.html goes without single_sentence: ValueError: odd rows" in error
    assert (tmp_path / "r" / "run.html").is_file()
