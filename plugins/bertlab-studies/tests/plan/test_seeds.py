"""Nested seeds: what a study file may say, and which runs it means."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.errors import CommandError
from bertlab_studies.errors import StudyError
from bertlab_studies.folder import claim
from bertlab_studies.plan.plan import make_plan
from bertlab_studies.plan.seeds import finetuning_seed, more_seeds, read_seeds, seeds_content
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.study import study as open_study
from small_study import finish, opened, plan_of, read_study

EVALUATED: dict[str, Any] = {"evaluate": {"qnli": "task.yaml"}}
NESTED: dict[str, Any] = {"seeds": {"pretrain": 2, "finetune": 3}, **EVALUATED}
SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5, unique=True).map(tuple)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (3, ((1, 2, 3), None)),
        ([4, 2], ((4, 2), None)),
        ({"pretrain": 2}, ((1, 2), None)),
        ({"pretrain": 2, "finetune": 3}, ((1, 2), (1, 2, 3))),
        ({"pretrain": [7], "finetune": [4, 2]}, ((7,), (4, 2))),
        ({"finetune": 2}, ((1, 2, 3), (1, 2))),
    ],
)
def test_seeds_of_a_file(content: object, expected: object) -> None:
    assert read_seeds(content, "s.yaml: seeds") == expected


@given(SEEDS, st.none() | SEEDS)
def test_what_is_written_reads_back(pretrain: Any, finetune: Any) -> None:
    assert read_seeds(seeds_content(pretrain, finetune), "x") == (pretrain, finetune)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"pretrain": 2, "fintune": 3}, "seeds: no key is called 'fintune'; did you mean 'fine"),
        ({"pretrain": 0, "finetune": 3}, "seeds.pretrain: found 0, expected a number of seeds"),
        ({"pretrain": 2, "finetune": [1, 1]}, r"seeds.finetune: found \[1, 1\]"),
        ({"pretrain": 2, "finetune": None}, "seeds.finetune: found None"),
        ({"pretrain": 2, "finetune": [2**32]}, "seeds.finetune: .*found 4294967296"),
        ({"pretrain": 2, "finetune": {"pretrain": 3}}, "seeds.finetune: found {"),
    ],
)
def test_wrong_seeds_are_named(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=f"^s.yaml: {message}"):
        read_study(tmp_path, seeds=content, **EVALUATED)


@pytest.mark.parametrize("base", ["base.yaml", "task.yaml"])
def test_a_study_without_fine_tunings_of_a_pre_training_refuses_them(
    base: str, tmp_path: Path
) -> None:
    with pytest.raises(
        StudyError, match=r"seeds.finetune: found \[1, 2, 3\], but there is no eval"
    ):
        read_study(tmp_path, base=base, seeds=NESTED["seeds"])


def test_each_pre_training_is_fine_tuned_with_each_seed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, **NESTED)
    assert len(plan.runs) == 2 * 2 * (1 + 3)
    for variant in ("both", "mlm"):
        for seed in (1, 2):
            base = plan.run_of(variant, BASE, seed)
            assert plan.runs_of(variant, BASE, seed) == {None: base}
            found = plan.runs_of(variant, "qnli", seed)
            assert list(found) == [1, 2, 3]
            assert found[1] == plan.run_of(variant, "qnli", seed)
            for finetune, run in found.items():
                assert run.parent == base.id
                assert run.id.startswith(f"{variant}-qnli-seed-{seed}-finetune-{finetune}-")
                assert run.arguments[-1] == f"--seed_everything={run.seed}"


def test_variants_share_seeds_and_pre_trainings_do_not(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, **NESTED)
    seeds = {
        (variant, seed, finetune): run.seed
        for variant in ("both", "mlm")
        for seed in (1, 2)
        for finetune, run in plan.runs_of(variant, "qnli", seed).items()
    }
    for (_, seed, finetune), found in seeds.items():
        assert found == seeds["mlm", seed, finetune]
    assert len(set(seeds.values())) == 2 * 3


def test_seeds_of_fine_tunings_are_kept_for_good() -> None:
    # written down: another number would be another run, and begun studies would lose theirs
    assert [finetuning_seed(2, finetune) for finetune in (1, 2, 3)] == [2, 1340026844, 2108521801]
    numbers = {finetuning_seed(a, b) for a in range(1, 101) for b in range(1, 101)}
    assert len(numbers) == 100 * 100
    assert all(0 <= number < 2**32 for number in numbers)


def test_without_fine_tuning_seeds_ids_are_as_they_always_were(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, seeds=2, **EVALUATED)
    assert plan.nested == {}
    for (variant, stage, seed), run_id in plan.cells.items():
        run = plan.runs[run_id]
        free = ("num_workers", "prepare_workers", "cache_dir", "log_every_n_steps")
        config = json.loads(json.dumps(plan.configs[variant, stage]))
        for section in ("data", "trainer"):
            for key in (*free, "enable_progress_bar"):
                config[section].pop(key, None)
        content = [{**config, "seed_everything": seed}, run.parent, None]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
        assert run_id == f"{variant}-{stage}-seed-{seed}-{digest}"
    assert plan_of(tmp_path, seeds={"pretrain": 2}, **EVALUATED).runs == plan.runs


def test_a_begun_study_gets_fine_tunings_and_keeps_its_runs(tmp_path: Path) -> None:
    begun = plan_of(tmp_path, seeds=2, **EVALUATED)
    nested = make_plan(read_study(tmp_path, **NESTED), begun.runs)
    assert begun.runs.keys() <= nested.runs.keys()
    for (variant, stage, seed), run in begun.cells.items():
        assert nested.run_of(variant, stage, seed) == begun.runs[run]
    assert len(nested.runs) == len(begun.runs) + 2 * 2 * 2


def test_the_pre_trainings_of_both_are_the_same(tmp_path: Path) -> None:
    plain, nested = plan_of(tmp_path, seeds=2, **EVALUATED), plan_of(tmp_path, **NESTED)
    bases = [{run.id for run in plan.in_order() if run.stage == BASE} for plan in (plain, nested)]
    assert bases[0] == bases[1]


def test_what_trains_nothing_is_run_once(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"sentence_good": "a b", "sentence_bad": "b a"}\n')
    entry = {"evaluation": "minimal_pairs", "data": str(pairs)}
    evaluate = {"qnli": "task.yaml", "order": entry}
    plan = plan_of(tmp_path, seeds=NESTED["seeds"], evaluate=evaluate)
    assert list(plan.runs_of("mlm", "order", 2)) == [None]
    assert len(plan.runs_of("mlm", "qnli", 2)) == 3
    plain = plan_of(tmp_path, seeds=2, evaluate=evaluate)
    assert plain.cells["mlm", "order", 2] == plan.cells["mlm", "order", 2]


def test_either_kind_of_seed_is_added(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATED)
    study.claim()
    before = set(study.planned.runs)
    more = study.add_seeds(finetune_seeds=2)
    assert (more.config.seeds, more.config.finetune_seeds) == ((1, 2), (1, 2))
    more = more.add_seeds(3)
    assert (more.config.seeds, more.config.finetune_seeds) == ((1, 2, 3), (1, 2))
    more = more.add_seeds([1, 2, 3, 9], [1, 2, 5])
    assert (more.config.seeds, more.config.finetune_seeds) == ((1, 2, 3, 9), (1, 2, 5))
    again = open_study(study.study_dir)
    assert again.config == more.config
    assert again.runs == more.runs
    # none of it was begun, and what only fine-tunes once is among it by its hash
    assert {run[-8:] for run in before} <= {run[-8:] for run in more.planned.runs}


def test_seeds_are_never_fewer(tmp_path: Path) -> None:
    study = opened(tmp_path, **NESTED)
    study.claim()
    kept = (study.study_dir / "study.yaml").read_bytes()
    for wrong, message in (
        ({"finetune_seeds": 2}, r"--finetune_seeds: found 2, expected the study's own \(1, 2, 3\)"),
        ({"seeds": 1}, r"--seeds: found 1, expected the study's own \(1, 2\) and more"),
        ({"seeds": 5, "finetune_seeds": [2, 3]}, "--finetune_seeds: found"),
        ({}, "missing: --seeds N or --finetune_seeds N"),
    ):
        with pytest.raises(CommandError, match=message):
            study.add_seeds(**wrong)
    assert (study.study_dir / "study.yaml").read_bytes() == kept
    with pytest.raises(CommandError, match=r"expected the study's own \(1\)"):
        more_seeds("--finetune_seeds", [2, 3], None)


def test_a_study_that_cannot_have_them_stays_as_it_is(tmp_path: Path) -> None:
    study = opened(tmp_path)
    study.claim()
    kept = (study.study_dir / "study.yaml").read_bytes()
    with pytest.raises(StudyError, match="there is no evaluate"):
        study.add_seeds(finetune_seeds=3)
    assert (study.study_dir / "study.yaml").read_bytes() == kept


def test_a_change_of_fine_tuning_seeds_is_told(tmp_path: Path) -> None:
    study = opened(tmp_path, **NESTED)
    assert study.claim() == []
    assert "finetune_seeds" in json.loads((study.study_dir / "plan.json").read_text())
    finish(study, study.planned.runs_of("mlm", "qnli", 2)[3], {"single_sentence/accuracy": 0.5})
    again = opened(tmp_path, **{**NESTED, "seeds": {"pretrain": 2, "finetune": 4}})
    changes = claim(study.study_dir, again.content, again.config, again.planned, False)
    assert changes == ["finetune_seeds: [1, 2, 3, 4] here, [1, 2, 3] there"]
    plain = opened(tmp_path / "plain", seeds=2, **EVALUATED)
    plain.claim()
    assert "finetune_seeds" not in json.loads((plain.study_dir / "plan.json").read_text())


def test_tables_have_all_of_them(tmp_path: Path) -> None:
    study = opened(tmp_path, **NESTED)
    assert len(study.plan().rows) == 16
    assert "seeds 1, 2, of fine-tuning 1, 2, 3" in study._repr_html_()
