"""``bertlab study`` as it is used, from the plan to the report."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from bertlab_studies.plan.study_file import BASE
from bertlab_studies.study import Study
from bertlab_studies.study import study as open_study
from small_study import finish, opened, write_study, write_yaml
from tests.conftest import Command

EVALUATE = {"evaluate": {"x": "task.yaml"}}
ACTIONS = ("run", "plan", "design", "status", "report", "compare", "add-seeds", "run-one")


def finished(folder: Path, better: float = 0.0, **content: object) -> Study:
    """Return a study with all of its runs done, which the second variant is better in."""
    study = opened(folder, **{**EVALUATE, **content})
    study.claim(accept_changes=False)
    for run in study.runs:
        shift = better * (run.variant == "mlm") + 0.01 * run.seed
        values = {"mlm/accuracy": 0.2 + shift, "mlm/loss": 5.0, "loss": 5.0}
        if run.stage != BASE:
            values = {"single_sentence/accuracy": 0.5 + shift, "loss": 0.6}
        finish(study, run, values)
    return study


def files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_usage_names_every_action(bertlab: Command) -> None:
    for arguments in ((), ("--help",), ("-h",)):
        code, out, _ = bertlab("study", *arguments)
        assert code == 0
        assert all(f"\n  {action} " in out for action in ACTIONS)


@pytest.mark.parametrize("action", ACTIONS)
def test_help_of_an_action(action: str, bertlab: Command) -> None:
    code, out, _ = bertlab("study", action, "--help")
    assert code == 0
    assert f"bertlab study {action}" in out
    assert "folders" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runn", "STUDY"], ["no action is called 'runn'", "did you mean 'run'"]),
        (["run"], ["study run: found no study"]),
        (["run", "STUDY", "STUDY"], ["expected one study"]),
        (["compare", "STUDY"], ["found one study, expected two or more"]),
        (["run", "STUDY", "--worker", "2"], ["worker: no such key", "did you mean 'workers'"]),
        (["run", "STUDY", "--workers", "two"], ["workers: found 'two', expected a whole number"]),
        (["run", "STUDY", "--workers", "0"], ["workers: found 0, expected 1 or more"]),
        (["run", "STUDY", "--retries", "-1"], ["retries: found -1, expected 0 or more"]),
        (["run", "STUDY", "--threads", "0"], ["threads: found 0, expected 1 or more"]),
        (["run", "STUDY", "--executor", "slrum"], ["no executor is called 'slrum'"]),
        (
            ["run", "STUDY", "--executor", "ray", "--workers", "2"],
            ["--workers: is an option of the executor local; not of ray"],
        ),
        (["run", "STUDY", "--set", "trainer.max_step=3"], ["did you mean 'trainer.max_steps'"]),
        (["plan", "STUDY", "--set"], ["--set: expected a value after it"]),
        (["plan", "STUDY", "--set", "x"], ["--set: found 'x', expected KEY=VALUE"]),
        (["plan", "nowhere.yaml"], ["nowhere.yaml: no such study file or directory"]),
        (["status", "studies/quikstart"], ["did you mean 'studies/quickstart'"]),
        (["status", "empty"], ["not the directory of a study"]),
        (["add-seeds", "STUDY", "5"], ["expected one study; did you mean --seeds 5?"]),
        (["run-one", "STUDY"], ["run"]),
        (["run-one", "STUDY", "--run", "both-base-seed-3"], ["did you mean 'both-base-seed-"]),
        (["design", "STUDY"], ["found no deviations, expected --pilot DIR"]),
        (["design", "STUDY", "--pilot", "empty"], ["empty: not the directory of a study"]),
        (
            ["design", "STUDY", "--pilot", "STUDY", "--deviation", "1"],
            ["found --pilot and --deviation, expected one of them"],
        ),
        (["design", "STUDY", "--pilot", "STUDY"], ["x accuracy: no variant has two seeds"]),
        (["design", "STUDY", "--deviation", "0"], ["--deviation: found 0.0, expected a number"]),
        (["design", "STUDY", "--deviation", "1", "--effect", "-1"], ["--effect: found -1.0"]),
        (["design", "STUDY", "--deviation", "1", "--rows", "9"], ["expected both, or --pilot"]),
        (
            ["design", "STUDY", "--deviation", "1", "--row_deviation", "9", "--rows", "1"],
            ["--rows: found 1, expected 2 or more"],
        ),
        (
            ["design", "STUDY", "--deviation", "1", "--measure", "x acuracy"],
            ["--measure: found 'x acuracy'", "did you mean 'x accuracy'"],
        ),
        (["add-seeds", "STUDY"], ["missing: --seeds"]),
        (["add-seeds", "STUDY", "--seeds", "3"], ["no study was run there yet"]),
    ],
    ids=" ".join,
)
def test_a_wrong_command_gets_one_line_and_leaves_nothing(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    study = str(write_study(tmp_path, **EVALUATE))
    (tmp_path / "empty").mkdir()
    before = files(tmp_path)
    code, _, err = bertlab("study", *(study if a == "STUDY" else a for a in arguments))
    assert code == 2
    assert err.startswith("bertlab: error E")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert files(tmp_path) == before


@pytest.mark.slow
def test_a_plan_is_printed_and_nothing_is_written(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    path = write_study(tmp_path, **EVALUATE)
    before = files(tmp_path)
    code, out, err = bertlab("study", "plan", path)
    assert code == 0, err
    assert files(tmp_path) == before
    assert "runs/studies/study: 8 runs" in out
    for run in open_study(str(path)).runs:
        assert run.id in out
    assert out.count("ready") == 4
    assert out.count("waiting") == 4
    assert "1.54e+03" in out  # 6 steps of 8 sequences of 32 tokens
    assert "together at most 6.14e+03 tokens" in out


def test_status_and_report(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    study = finished(tmp_path, better=0.2)
    shutil.rmtree(study.runs[-1].directory(study.study_dir))
    code, out, err = bertlab("study", "status", study.study_dir)
    assert code == 0, err
    assert out.count("done") == 7
    assert "ready" in out
    code, out, err = bertlab("study", "report", study.study_dir)
    assert code == 0, err
    assert "x accuracy" in out
    assert (study.study_dir / "report" / "report.html").is_file()
    code, again, err = bertlab("study", "report", study.study_dir)
    assert (code, again, err) == (0, out, "")
    shutil.copytree(
        study.runs[0].directory(study.study_dir), study.study_dir / "runs" / "mlm-base-old"
    )
    for action in ("status", "report"):
        code, _, err = bertlab("study", action, study.study_dir)
        assert code == 0
        assert "1 runs are not of the study as it is now (mlm-base-old, …)" in err


@pytest.mark.slow
def test_a_design_of_given_deviations(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    path = write_study(tmp_path, seeds=4, **EVALUATE)
    before = files(tmp_path)
    known = ("--deviation", "0.8", "--finetune_deviation", "1.2")
    code, out, err = bertlab("study", "design", path, *known, "--effect", "2.5")
    assert code == 0, err
    assert files(tmp_path) == before
    # 2 variants, each pre-trained once and fine-tuned three times: 8 runs a seed
    assert "│     5 │            3 │" in out
    assert "│   40 │ ≥ " in out
    # seeds, fine-tunings, shows: 10.37, 6.03, … 0.81 points, all with two decimals
    shown = re.findall(r"^│ +\d+ │ +\d │ +([\d.]+) │", out, re.M)
    assert len(shown) == 18
    assert {len(each.partition(".")[2]) for each in shown} == {2}
    assert "power for 2.5 points" in out
    assert "shows 2.5 points four times in five: 5 seeds, 3 fine-tunings of each, 40 runs." in out
    assert "0.8 points over seeds, 1.2 points over fine-tunings." in out
    assert "Test: 5 %, not paired. Rows are left out" in out
    rows = ("--row_deviation", "20", "--rows", "277")
    code, out, err = bertlab("study", "design", path, *known, *rows)
    assert code == 0, err
    assert "277 rows alone cannot show less than 3.38 points, and more seeds do not help" in out


@pytest.mark.slow
def test_a_design_by_a_pilot(tmp_path: Path, bertlab: Command) -> None:
    pilot = finished(tmp_path / "pilot")
    variants = {
        "both": {},
        "mlm": {"objectives": {"nsp": None}},
        "wide": {"optimizer.learning_rate": 0.01},
    }
    path = write_study(tmp_path, variants=variants, **EVALUATE)
    given = ("design", path, "--pilot", pilot.study_dir)
    code, out, err = bertlab("study", *given)
    assert code == 0, err
    assert "x accuracy" in out
    # seeds 1 and 2 reach 0.51 and 0.52 in both variants
    assert "0.707 points over seeds (2 degrees of freedom)" in out
    assert "after Holm over 2 comparisons" in out
    code, out, err = bertlab("study", "design", pilot.study_dir, "--pilot", pilot.study_dir)
    assert code == 0, err
    assert "Test: 5 %, not paired." in out


def test_one_effect_is_of_one_unit(tmp_path: Path, bertlab: Command) -> None:
    path = write_study(
        tmp_path,
        variants={"a": {}, "b": {"optimizer.learning_rate": 0.01}},
        decide=["mlm loss"],
        **EVALUATE,
    )
    code, _, err = bertlab("study", "design", path, "--deviation", "0.1")
    assert code == 2
    assert "expected --measure with one of: x accuracy, mlm loss" in err
    code, out, err = bertlab(
        "study", "design", path, "--deviation", "0.1", "--measure", "mlm loss", "--effect", "0.2"
    )
    assert code == 0, err
    assert "power for 0.2" in out
    assert "points" not in out


def test_a_plan_says_what_it_can_show(tmp_path: Path, bertlab: Command) -> None:
    code, out, err = bertlab("study", "plan", write_study(tmp_path / "new", **EVALUATE))
    assert code == 0, err
    assert "what it can show: bertlab study design" in out
    of_a_model = ("--set", "init_from=a-folder")  # which says how large it is when it is read
    code, out, err = bertlab("study", "plan", write_study(tmp_path / "of", **EVALUATE), *of_a_model)
    assert code == 0, err
    assert "costs are known when the data is read" in out
    assert "0 tokens" not in out
    study = finished(tmp_path)
    code, out, err = bertlab("study", "plan", study.study_dir)
    assert code == 0, err
    assert "shown four times in five: x accuracy" in out
    assert "points with 2 seeds" in out
    (next((study.study_dir / "runs").glob("*-x-*")) / "results.json").write_text("{}", "utf-8")
    code, out, err = bertlab("study", "plan", study.study_dir)
    assert code == 0, err
    assert "what it can show is not known: " in out


def test_a_report_of_nothing(tmp_path: Path, bertlab: Command) -> None:
    given = ("--study_dir", tmp_path / "place")
    code, _, err = bertlab("study", "report", write_study(tmp_path, **EVALUATE), *given)
    assert code == 0, err


@pytest.mark.slow
def test_studies_are_compared(tmp_path: Path, bertlab: Command) -> None:
    one, two = finished(tmp_path / "a", name="one"), finished(tmp_path / "b", 0.1, name="two")
    output = tmp_path / "both"
    code, out, err = bertlab("study", "compare", one.study_dir, two.study_dir, "--output", output)
    assert code == 0, err
    assert "one" in out
    assert "two" in out
    assert list(output.glob("*.html"))


@pytest.mark.slow
def test_more_seeds(tmp_path: Path, bertlab: Command) -> None:
    study = finished(tmp_path)
    code, out, err = bertlab("study", "add-seeds", study.study_dir, "--seeds", "4")
    assert code == 0, err
    assert f"4 seeds; continue with: bertlab study run {study.study_dir}" in out
    again = open_study(str(study.study_dir))
    assert again.config.seeds == (1, 2, 3, 4)
    assert [run.id for run in again.runs if run.seed < 3] == [run.id for run in study.runs]
    code, _, err = bertlab("study", "add-seeds", study.study_dir, "--seeds", "[2, 3]")
    assert code == 2
    assert "expected the study's own (1, 2, 3, 4) and more" in err
    code, _, err = bertlab("study", "add-seeds", study.study_dir, "--seeds", "[1, 2, 3, 4, 9]")
    assert code == 0, err
    assert open_study(str(study.study_dir)).config.seeds == (1, 2, 3, 4, 9)


@pytest.mark.slow
def test_a_study_that_is_done_is_reported(tmp_path: Path, bertlab: Command) -> None:
    study = finished(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (study.study_dir / "runs").rglob("*")}
    code, out, err = bertlab("study", "run", study.study_dir)
    assert code == 0, err
    assert "8 done" in out
    assert {
        path: path.stat().st_mtime_ns for path in (study.study_dir / "runs").rglob("*")
    } == before
    code, _, err = bertlab("study", "run-one", study.study_dir, "--run", study.runs[3].id)
    assert code == 0, err
    assert not (study.study_dir / "logs").exists()


@pytest.mark.slow
def test_a_study_that_changed(tmp_path: Path, bertlab: Command) -> None:
    study = finished(tmp_path)
    path = tmp_path / "study.yaml"
    given = ("study", "plan", path, "--study_dir", study.study_dir)
    code, out, _ = bertlab(*given, "--set", "optimizer.learning_rate=0.01")
    assert code == 0
    assert out.count("done") == 0
    given = ("study", "run", *given[2:])
    code, _, err = bertlab(*given, "--set", "optimizer.learning_rate=0.01")
    assert code == 2
    assert "the study changed since it was begun" in err
    assert "model.optimizer.learning_rate: 0.01 here" in err


ROWS = [
    {"text": f"the value {number} is {color}", "label": number % 2}
    for number, color in enumerate(["red", "blue"] * 20)
]


@pytest.fixture(scope="module")
def real_study(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Path:
    """The file of a study of real runs, none of which takes longer than its start."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8")
    task = {
        "model": {
            "init_from": "nowhere",
            "head": "single_sentence",
            "optimizer": {"learning_rate": 3.0e-3},
        },
        "data": {
            "source": str(folder / "rows.jsonl"),
            "label_names": {"0": "no", "1": "yes"},
            "validation_fraction": 0.5,
            "max_seq_length": 32,
            "batch_size": 8,
        },
        "trainer": {"max_epochs": 6, "accelerator": "cpu"},
    }
    write_yaml(folder / "colors.yaml", task)
    variants = {"objectives=mlm": {"objectives": ["mlm"]}, "objectives=mlm+nsp": {}}
    content = {"base": str(tiny_config), "variants": variants, "seeds": 2}
    content["evaluate"] = ["colors.yaml"]
    return write_yaml(folder / "tiny.yaml", content)


def started(study: Path) -> dict[str, int]:
    """Return how often each run was started."""
    return {
        path.stem: len(json.loads(path.read_text())["attempts"])
        for path in (study / "attempts").glob("*.json")
    }


def scores_in(report: Path) -> list[str]:
    """Return the lines of a report's tables and findings that name a variant."""
    text = (report / "report.md").read_text("utf-8").partition("## Variants")[0]
    return [line for line in text.splitlines() if "objectives=" in line]


@pytest.mark.slow
@pytest.mark.timeout(900)  # ten processes that import torch, on a machine with other work
def test_a_whole_study(
    real_study: Path,
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = bertlab("study", "run", real_study, "--workers", "2", "--threads", "1")
    assert code == 0, out + err
    place = tmp_path / "runs" / "studies" / "tiny"
    assert len(started(place)) == 8
    assert set(started(place).values()) == {1}
    check_scores(open_study(str(place)))
    first = scores_in(place / "report")
    assert len(first) >= 4

    code, out, err = bertlab("study", "run", place)
    assert code == 0, err
    assert set(started(place).values()) == {1}
    assert scores_in(place / "report") == first

    # the same question in one line is the same study: its runs, done already, are taken over
    shutil.copytree(place / "runs", tmp_path / "ablated" / "runs")
    code, out, err = bertlab(
        *("ablate", "--config", tiny_config, "--vary", "objectives=[mlm],[mlm,nsp]"),
        *("--seeds", "2", "--evaluate", real_study.with_name("colors.yaml")),
        *("--study_dir", tmp_path / "ablated"),
    )
    assert code == 0, out + err
    assert started(tmp_path / "ablated") == {}
    assert scores_in(tmp_path / "ablated" / "report") == first


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_variants_share_what_is_there(real_study: Path, tmp_path: Path, bertlab: Command) -> None:
    place = tmp_path / "shared"
    run = ("--study_dir", place, "--workers", "2", "--threads", "1")
    code, out, err = bertlab("study", "run", real_study, *run)
    assert code == 0, out + err
    content = yaml.safe_load(real_study.read_text())
    content["variants"]["half"] = {"evaluate.from_step": 3}
    half = write_yaml(real_study.with_name("half.yaml"), content)
    code, out, err = bertlab("study", "run", half, *run)
    assert code == 0, out + err
    assert "changed: variant 'half': new" in out
    assert len(started(place)) == 10
    assert set(started(place).values()) == {1}
    found = open_study(str(place)).scores()
    assert len(found.cell("half", found.measures[0]).values) == 2


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_replaced_corpus_is_not_averaged_with_the_one_before(
    tiny_config: Path, corpus_file: Path, tmp_path: Path, bertlab: Command
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(corpus_file.read_text("utf-8"), "utf-8")
    content = {
        "base": str(tiny_config),
        "settings": {"data.corpus": str(text), "trainer.max_steps": 3},
        "variants": {"slow": {}, "fast": {"optimizer.learning_rate": 0.01}},
        "seeds": 1,
    }
    path = write_yaml(tmp_path / "swap.yaml", content)
    place = tmp_path / "swap"
    run = ("study", "run", path, "--study_dir", place, "--threads", "1")
    assert bertlab(*run)[0] == 0
    assert bertlab("study", "add-seeds", place, "--seeds", "2")[0] == 0
    text.write_text(text.read_text("utf-8").replace("the", "thee"), "utf-8")
    code, _, err = bertlab(*run)
    assert code == 2
    assert "its runs have different data, though their configs say the same:" in err
    assert "corpus: " in err
    assert "what would be run now" in err
    assert len(started(place)) == 2
    code, out, _ = bertlab(*run, "--accept_mixture", "true")
    assert code == 0
    assert "kept: seeds [1, 2], with those that were added" in out
    assert len(started(place)) == 4
    code, _, err = bertlab("study", "report", place)
    assert code == 2
    assert "tokenizer: " in err
    assert "‡" in (place / "report" / "report.md").read_text("utf-8")
    measures = open_study(place).scores(accept_mixture=True).measures
    assert [each.name for each in measures if each.is_primary] == ["mlm loss", "nsp loss"]


def check_scores(study: Study) -> None:
    """Compare what was collected with what the runs wrote."""
    found = study.scores()
    measure = found.measures[0]
    assert measure.name == "colors accuracy"
    for name, variant in found.variants.items():
        cell = found.cell(name, measure)
        assert set(cell.values) == {1, 2}
        for seed, value in cell.values.items():
            run = study.planned.runs[study.planned.cells[name, "colors", seed]]
            results: Mapping[str, float] = json.loads(
                (run.directory(study.study_dir) / "results.json").read_text()
            )
            assert value == results["single_sentence/accuracy"]
            assert cell.examples[seed].mean() == pytest.approx(value)
        assert set(variant.seconds) == {1, 2}
        assert variant.tokens is not None
        assert variant.flops is not None
        assert list(variant.curves["mlm loss"][1].steps) == [3, 6]
    # the two variants read the same text: what it costs is the same
    assert len({variant.tokens for variant in found.variants.values()}) == 1
