"""Pre-trainings that two studies have in common are run once."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bertlab.config.yaml_files import Config, read_config
from bertlab.errors import OutputError
from bertlab.plugins.index import version_of
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.execution import take_lock
from bertlab_studies.execute.run_state import (
    Attempt,
    Outcome,
    is_done,
    lock_file,
    read_attempts,
    write_attempts,
)
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.sameness import corpus_now
from bertlab_studies.reuse import adopt, find_reusable
from bertlab_studies.study import Study
from bertlab_studies.study import study as open_study
from small_study import finish, write_study, write_yaml
from tests.conftest import Command

TWO = {"seeds": 2, "evaluate": {"x": "task.yaml"}}


def open_in(folder: Path, name: str, text: str = "One. Two.\n", **content: Any) -> Study:
    """Return a study on a corpus that all studies of a folder have."""
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        corpus.write_text(text)
    settings = {"data.corpus": str(corpus)}
    path = write_study(folder, settings=settings, **{**TWO, **content})
    return open_study(path.rename(folder / f"{name}.yaml"), folder / name)


def config_of(study: Study) -> Config:
    return study.planned.configs[study.runs[0].variant, BASE]


def leave_all(study: Study, **changes: Any) -> Study:
    """Leave what a study leaves that was run."""
    study.claim()
    for run in study.runs:
        facts = {
            "packages": {name: version_of(name) for name in ("bertlab", "torch")},
            "plugins": {"bertlab": version_of("bertlab")},
            "tokenizer": "t",
        }
        facts["corpus"] = corpus_now(config_of(study))
        finish(study, run, {"mlm/loss": 5.0, "loss": 5.0}, manifest={**facts, **changes})
        checkpoints = run.directory(study.study_dir) / "checkpoints"
        checkpoints.mkdir()
        (checkpoints / "last.ckpt").write_text(f"weights of {run.id}")
        write_attempts(run, study.study_dir, [Attempt(1.0, False, Outcome.DONE, 60.0, 0)])
    return study


def problems(study: Study, *others: Study) -> list[str]:
    places = [other.study_dir for other in others]
    return [each.problem for each in find_reusable(study.planned, study.study_dir, places)]


@pytest.mark.slow
def test_the_same_pretraining_is_taken_over_and_outlives_the_other_study(tmp_path: Path) -> None:
    there = leave_all(open_in(tmp_path, "a", variants={"ours": {}, "nsp": {"objectives": ["nsp"]}}))
    # other names, other evaluations, another variant
    variants = {"both": {}, "mlm": {"objectives": ["mlm"]}}
    here = open_in(tmp_path, "b", variants=variants, evaluate={"y": "other.yaml"})
    found = find_reusable(here.planned, here.study_dir, [there.study_dir])
    assert [(each.run.variant, each.run.seed, each.problem) for each in found] == [
        ("both", 1, ""),
        ("both", 2, ""),
    ]
    here.claim()
    for each in found:
        assert adopt(each, here.study_dir)
        assert not adopt(each, here.study_dir)  # it is there
    source, run = found[0].source, found[0].run
    directory = run.directory(here.study_dir)
    assert source.name != directory.name
    assert (directory / "checkpoints/last.ckpt").samefile(source / "checkpoints/last.ckpt")
    assert not (directory / "results.json").samefile(source / "results.json")
    manifest = json.loads((directory / "manifest.json").read_text())
    original = json.loads((source / "manifest.json").read_text())
    assert manifest == {**original, "reused_from": str(source)}
    assert [each.seconds for each in read_attempts(run, here.study_dir)] == [60.0]
    shutil.rmtree(there.study_dir)
    assert is_done(directory)
    weights = (directory / "checkpoints/last.ckpt").read_text()
    assert weights == f"weights of {source.name}"
    states = {row[0]: row[1] for row in here.status().rows}
    assert states[run.id] == "done, from a"
    assert sorted(states.values()) == ["done, from a"] * 2 + ["ready"] * 4 + ["waiting"] * 2


@pytest.mark.slow
def test_a_copy_where_links_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = leave_all(open_in(tmp_path, "a")), open_in(tmp_path, "b")

    def fail(*arguments: object) -> None:
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr("os.link", fail)
    found = find_reusable(here.planned, here.study_dir, [there.study_dir])[0]
    assert adopt(found, here.study_dir)
    file = found.run.directory(here.study_dir) / "checkpoints/last.ckpt"
    assert file.read_text() == (found.source / "checkpoints/last.ckpt").read_text()


@pytest.mark.slow
def test_what_is_begun_or_at_work_here_is_left_alone(tmp_path: Path) -> None:
    there, here = leave_all(open_in(tmp_path, "a")), open_in(tmp_path, "b")
    found = find_reusable(here.planned, here.study_dir, [there.study_dir])
    lock = take_lock(lock_file(found[0].run, here.study_dir))
    assert lock is not None
    assert not adopt(found[0], here.study_dir)
    assert not found[0].run.directory(here.study_dir).exists()
    found[1].run.directory(here.study_dir).mkdir(parents=True)
    again = find_reusable(here.planned, here.study_dir, [there.study_dir])
    assert len(again) == len(found) - 1


@pytest.mark.slow
def test_a_run_that_is_not_done_and_a_fine_tuning_are_not_taken(tmp_path: Path) -> None:
    there, here = leave_all(open_in(tmp_path, "a")), open_in(tmp_path, "b")
    first = there.runs[0]
    (first.directory(there.study_dir) / "results.json").unlink()
    found = find_reusable(here.planned, here.study_dir, [there.study_dir])
    assert {each.run.stage for each in found} == {BASE}
    assert first.id not in {each.run.id for each in found}
    assert len(found) == 3


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"corpus": "7" * 64}, "its corpus was 777777777777…, here it is "),
        ({"corpus": None}, "it did not record its corpus"),
        (
            {"packages": {"bertlab": version_of("bertlab"), "torch": "1.0"}},
            "made with torch 1.0, here",
        ),
        ({"packages": {}}, "made with torch unknown, here is"),
        ({"plugins": {"bertlab-gone": "3"}}, "made with bertlab-gone 3, here is none"),
    ],
)
def test_other_content_is_said_and_not_reused(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    there, here = leave_all(open_in(tmp_path, "a"), **changes), open_in(tmp_path, "b")
    found = problems(here, there)
    assert len(found) == 4
    assert all(problem in each for each in found)


@pytest.mark.slow
def test_a_corpus_that_was_replaced_or_is_gone_is_said(tmp_path: Path) -> None:
    there, here = leave_all(open_in(tmp_path, "a")), open_in(tmp_path, "b")
    (tmp_path / "corpus.txt").write_text("Another text.\n")
    assert all("its corpus was" in each for each in problems(here, there))
    (tmp_path / "corpus.txt").unlink()
    assert all("corpus.txt" in each for each in problems(here, there))


@pytest.mark.slow
def test_a_config_with_the_same_hash_and_other_values_is_said(tmp_path: Path) -> None:
    there, here = leave_all(open_in(tmp_path, "a")), open_in(tmp_path, "b")
    for run in there.runs:
        config = {**there.planned.configs[run.variant, run.stage]}
        config["data"] = {**config["data"], "batch_size": 9}
        write_yaml(run.directory(there.study_dir) / "config.yaml", config)
    assert problems(here, there) == ["its config differs: data.batch_size: 8 here, 9 there"] * 4


@pytest.mark.slow
def test_a_run_with_other_seeds_of_parts_is_not_the_same(tmp_path: Path) -> None:
    parts = {"seeds": {"weights": [5, 6], "order": 1}}
    there, here = leave_all(open_in(tmp_path, "a", **parts)), open_in(tmp_path, "b", **parts)
    assert problems(here, leave_all(open_in(tmp_path, "c"))) == []  # of no such hash
    for run in there.runs:
        if run.stage != BASE:
            continue
        path = run.directory(there.study_dir) / "config.yaml"
        write_yaml(path, {**read_config(path), "seed": run.seed_parts})
    assert problems(here, there) == [""] * 4
    for run in there.runs:
        path = run.directory(there.study_dir) / "config.yaml"
        write_yaml(path, {**read_config(path), "seed": {"weights": 9}})
    found = problems(here, there)
    assert len(found) == 4
    assert all("seed.weights: " in each for each in found)


@pytest.mark.slow
def test_a_tokenizer_that_differs_from_runs_here_is_said(tmp_path: Path) -> None:
    there = leave_all(open_in(tmp_path, "a"))
    here = leave_all(open_in(tmp_path, "b"), tokenizer="another")
    for run in here.runs[1:]:
        shutil.rmtree(run.directory(here.study_dir))
    found = problems(here, there)
    assert found == [f"its tokenizer is not that of {here.runs[0].id} here"] * 3


@pytest.mark.slow
def test_another_study_may_have_the_same(tmp_path: Path) -> None:
    wrong = leave_all(open_in(tmp_path, "a"), corpus="7" * 64)
    right = leave_all(open_in(tmp_path, "b"))
    here = open_in(tmp_path, "c")
    assert problems(here, wrong, right) == [""] * 4


def test_what_a_link_of_another_study_leads_to_is_not_copied(tmp_path: Path) -> None:
    there, here = leave_all(open_in(tmp_path, "a")), open_in(tmp_path, "b")
    (tmp_path / "secret").write_text("mine")
    found = find_reusable(here.planned, here.study_dir, [there.study_dir])[0]
    (found.source / ".hidden").symlink_to(tmp_path / "secret")  # passed over
    assert adopt(found, here.study_dir)
    assert not (found.run.directory(here.study_dir) / ".hidden").exists()
    other = find_reusable(here.planned, here.study_dir, [there.study_dir])[1]
    (other.source / "notes.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(OutputError, match=r"notes\.txt: is a link that leads out"):
        adopt(other, here.study_dir)
    assert not other.run.directory(here.study_dir).exists()


def test_what_is_no_other_study_is_refused(tmp_path: Path) -> None:
    here = open_in(tmp_path, "a")
    with pytest.raises(StudyError, match=r"--reuse: .* is not the directory of a study"):
        here.plan(tmp_path / "nowhere")
    here.claim()
    with pytest.raises(StudyError, match="is this study"):
        here.plan(here.study_dir)


@pytest.mark.slow
def test_a_plan_shows_what_could_be_reused_and_what_is_left(
    tmp_path: Path, bertlab: Command
) -> None:
    there = leave_all(open_in(tmp_path, "a"))
    shutil.rmtree(there.runs[0].directory(there.study_dir))
    leave_all(open_in(tmp_path, "wrong"), corpus="7" * 64)
    here = open_in(tmp_path, "b")
    places = f"[{there.study_dir}, {tmp_path / 'wrong'}]"
    given = ("study", "plan", tmp_path / "b.yaml", "--study_dir", here.study_dir)
    code, plain, _ = bertlab(*given)
    assert code == 0
    assert "left" not in plain
    code, out, err = bertlab(*given, "--reuse", places)
    assert code == 0, err
    assert out.count("done in a") == 3
    assert f"not reused: {here.runs[0].id} of {tmp_path / 'wrong'}: its corpus was 777" in out
    total, left = (float(line.split()[-2]) for line in _costs(out))
    # one of two seeds of the first variant is left, of four equal or smaller runs
    assert 0 < left < total / 3
    assert not here.study_dir.exists()


def _costs(out: str) -> list[str]:
    # "together at most 1e3 tokens, 2e6 FLOPs (5e5 left), …" -> "… 2e6 FLOPs", "5e5 left"
    text = " ".join(out.split()).partition("together at most ")[2]
    total, _, rest = text.partition(" (")
    return [total, rest.partition(")")[0]]


@pytest.mark.nightly
@pytest.mark.timeout(900)  # four processes that import torch, on a machine with other work
def test_real_pretrainings_are_shared_and_fine_tuned(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    rows = [{"text": f"row {number}", "label": number % 2} for number in range(20)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {
        "source": str(file),
        "label_names": {"0": "no", "1": "yes"},
        "validation_fraction": 0.5,
        "max_seq_length": 32,
        "batch_size": 8,
    }
    model = {"init_from": "nowhere", "head": "single_sentence"}
    trainer = {"max_epochs": 1, "accelerator": "cpu"}
    write_yaml(tmp_path / "task.yaml", {"model": model, "data": data, "trainer": trainer})
    content = {"base": str(tiny_config), "seeds": 1}
    rate = {"objectives.mlm.rate": 0.3}
    write_yaml(tmp_path / "a.yaml", {**content, "variants": {"base": {}, "rate": rate}})
    variants = {"plain": {}, "often": rate}
    write_yaml(tmp_path / "b.yaml", {**content, "variants": variants, "evaluate": ["task.yaml"]})
    first, second = tmp_path / "a", tmp_path / "b"
    code, _, err = bertlab("study", "run", tmp_path / "a.yaml", "--study_dir", first)
    assert code == 0, err
    given = (tmp_path / "b.yaml", "--study_dir", second, "--reuse", first)
    code, out, err = bertlab("study", "plan", *given)
    assert code == 0, err
    assert out.count("done in a") == 2
    code, out, err = bertlab("study", "run", *given)
    assert code == 0, err
    assert out.count("\nreused: ") + out.startswith("reused: ") == 2
    shutil.rmtree(first)
    study = open_study(second)
    assert not study.report().warnings or "differ" not in " ".join(study.report().warnings)
    assert [row[1] for row in study.status().rows].count("done, from a") == 2
    fresh = [run for run in study.runs if run.stage != BASE]
    logs = [run.log(second).exists() for run in study.runs]
    assert sum(logs) == len(fresh) == 2  # nothing else was started here
