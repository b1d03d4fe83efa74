"""From a study to its runs: what is shared, what they are called, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.errors import ConfigError
from bertlab_studies.plan.plan import WEIGHTS, make_plan, variant_settings
from bertlab_studies.plan.study_file import BASE
from small_study import BASE as BASE_CONFIG
from small_study import TASK, TWO, plan_of, read_study, write_yaml

STEPS = {"checkpoint": {"save_top_k": -1}}


def test_each_variant_has_the_same_seeds_and_parents_come_first(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, seeds=[7, 3], evaluate=["task.yaml", "other.yaml"])
    assert len(plan.runs) == 2 * 2 * 2  # both tasks are the same config
    assert {cell[2] for cell in plan.cells} == {7, 3}
    assert len(plan.cells) == 2 * 3 * 2
    seen: set[str] = set()
    for run in plan.in_order():
        assert run.parent is None or run.parent in seen
        assert (run.stage == BASE) == (run.parent is None)
        assert f"--seed_everything={run.seed}" in run.arguments
        if run.parent is not None:
            assert plan.runs[run.parent].seed == run.seed
        seen.add(run.id)


def test_variants_share_what_is_the_same(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        seeds=1,
        settings=STEPS,
        variants={
            "a": {},
            "dropout": {"evaluate.head.dropout": 0.3},
            "early": {"evaluate.from_step": 3},
            "scratch": {"evaluate.from_scratch": True},
        },
        evaluate=["task.yaml"],
    )
    assert len({plan.cells[name, BASE, 1] for name in ("a", "dropout", "early", "scratch")}) == 1
    assert len({plan.cells[n, "task", 1] for n in ("a", "dropout", "early", "scratch")}) == 4
    assert len(plan.runs) == 5
    early = plan.runs[plan.cells["early", "task", 1]]
    assert f"--model.init_from={WEIGHTS}/checkpoints/step-3.ckpt" in early.arguments


def test_ids_do_not_depend_on_folder_order_or_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(Path("x"))
    (tmp_path / "y" / "z").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "y" / "z")
    base = {**BASE_CONFIG, "model": {**BASE_CONFIG["model"], "optimizer": {"weight_decay": 0.01}}}
    write_yaml(tmp_path / "other" / "base.yaml", base)  # the default, said
    again = plan_of(
        Path("../../other"),
        variants={"both": {"data": {"errors": "strict"}}, "mlm": {"objectives": ["mlm"]}},
    )
    assert list(again.runs) == list(plan.runs)
    swapped = plan_of(tmp_path / "x", variants=dict(reversed(TWO.items())))
    assert set(swapped.runs) == set(plan.runs)


def test_a_run_that_was_begun_keeps_its_id(tmp_path: Path) -> None:
    def ask(*names: str) -> dict[str, Any]:
        others = {"shares it": {"evaluate.head.dropout": 0.3}, "mlm": {"objectives": ["mlm"]}}
        return {
            "variants": {name: others.get(name, {}) for name in names},
            "evaluate": ["task.yaml"],
            "seeds": 1,
        }

    begun = plan_of(tmp_path, **ask("a", "shares it", "mlm"))
    for names in (("shares it", "mlm", "a"), ("mlm", "new name", "shares it")):
        again = make_plan(read_study(tmp_path, **ask(*names)), begun.runs)
        assert set(again.runs) == set(begun.runs)
        assert {run.parent for run in again.runs.values()} == {
            run.parent for run in begun.runs.values()
        }


def test_paths_in_arguments_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run in plan_of(Path("x"), evaluate=["task.yaml"]).in_order():
        assert Path(run.arguments[1]).is_absolute()


@pytest.mark.slow
def test_arguments_give_the_config_of_the_plan(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        seeds=1,
        settings={"trainer.val_check_interval": 2},
        variants={
            "a": {"data": {"batch_size": 4}, "optimizer.betas": [0.8, 0.9]},
            "b": {"objectives": {"nsp": None, "mlm": {"rate": 0.4}}, "encoder.causal": False},
            "c": {"encoder": {"causal": True}, "objectives": ["clm"]},
        },
        evaluate={
            "one": {"config": "task.yaml", "settings": {"data": {"columns": {"text": "t: u"}}}}
        },
    )
    for (variant, stage, seed), run_id in plan.cells.items():
        run = plan.runs[run_id]
        arguments = [each.replace(WEIGHTS, "runs/x") for each in run.arguments]
        config = resolve_request(read_request(arguments))
        assert config.pop("seed_everything") == seed
        expected = {**plan.configs[variant, stage]}
        expected.pop("seed_everything", None)
        if stage != BASE:
            assert config["model"].pop("init_from") == "runs/x"
            expected["model"] = {k: v for k, v in expected["model"].items() if k != "init_from"}
        assert config == expected
    found = plan.configs["b", BASE]["model"]["objectives"]
    assert list(found) == ["mlm"]
    assert found["mlm"]["rate"] == 0.4
    assert plan.configs["a", "one"]["data"]["columns"] == {"text": "t: u"}


def test_what_a_config_file_repeats_is_left_to_the_study(tmp_path: Path) -> None:
    write_yaml(tmp_path / "base.yaml", {**BASE_CONFIG, "seeds": 5})
    write_yaml(tmp_path / "task.yaml", {**TASK, "against_scratch": True})
    for run in plan_of(tmp_path, evaluate=["task.yaml"]).in_order():
        assert {"--seeds=null", "--against_scratch=false"} <= set(run.arguments)


def test_predictions_are_kept_of_labelled_rows(tmp_path: Path) -> None:
    for run in plan_of(tmp_path, evaluate=["task.yaml"]).in_order():
        keeps = "false" if run.stage == BASE else "true"
        assert f"--keep_predictions={keeps}" in run.arguments
    variants: dict[str, Any] = {"a": {}, "b": {"from_scratch": True}}
    for run in plan_of(tmp_path, base="task.yaml", variants=variants).in_order():
        assert "--keep_predictions=true" in run.arguments


@pytest.mark.slow
def test_names_stay_in_the_directory_and_do_not_collide(tmp_path: Path) -> None:
    names = ["../../x", "..", "a b", "a-b", "a/b", "日本", "", "x" * 300]
    rates = [0.1 + 0.01 * number for number in range(len(names))]
    plan = plan_of(
        tmp_path,
        variants={n: {"objectives.mlm.rate": r} for n, r in zip(names, rates, strict=True)},
        seeds=1,
        evaluate={"../../y": "task.yaml"},
    )
    assert len(plan.runs) == 2 * len(names)
    for run in plan.in_order():
        for path in (run.directory(tmp_path), run.log(tmp_path)):
            assert path.resolve().parent.parent == tmp_path
            assert len(path.name) < 200
            assert not path.name.startswith(".")
    for name, rate in zip(names, rates, strict=True):
        config = plan.configs[name, BASE]
        assert config["model"]["objectives"]["mlm"]["rate"] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("budget", "steps", "tokens", "time"),
    [
        ({"steps": 4}, 4, None, None),
        ({"tokens": 5000}, -1, 5000.0, None),
        ({"time": {"minutes": 1}}, -1, None, "00:00:01:00"),
    ],
)
def test_a_budget_is_the_only_end(
    budget: dict[str, Any], steps: int, tokens: float | None, time: str | None, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, budget=budget, evaluate=["task.yaml"])
    for variant in TWO:
        config = plan.configs[variant, BASE]
        assert config["trainer"]["max_steps"] == steps
        assert config["trainer"]["max_epochs"] == -1
        assert config["max_tokens"] == tokens
        assert config["trainer"]["max_time"] == time
        assert plan.configs[variant, "task"]["trainer"]["max_epochs"] == 2
    run = next(iter(plan.runs.values()))
    assert run.steps == (steps if steps > 0 else None)


def test_settings_in_which_variants_differ(tmp_path: Path) -> None:
    study = read_study(
        tmp_path,
        settings=STEPS,
        variants={
            "a": {},
            "b": {"objectives": {"mlm": {"rate": 0.3}}, "evaluate.head.dropout": 0.5},
            "c": {"evaluate.from_step": 3},
        },
        evaluate=["task.yaml"],
    )
    found = variant_settings(make_plan(study), study)
    rate, dropout = "model.objectives.mlm.rate", "task: model.head.dropout"
    assert found["a"] == {rate: 0.15, dropout: None, "evaluate.from_step": None}
    assert found["b"] == {rate: 0.3, dropout: 0.5, "evaluate.from_step": None}
    assert found["c"] == {rate: 0.15, dropout: None, "evaluate.from_step": 3}


def variant(**overrides: Any) -> dict[str, Any]:
    return {"variants": {"a": {}, "wrong": {k.replace("__", "."): v for k, v in overrides.items()}}}


EVALUATED: dict[str, Any] = {"evaluate": ["task.yaml"]}
WRONG: list[tuple[dict[str, Any], list[str]]] = [
    (
        variant(encoder__hiden_size=64),
        [
            "wrong: model.encoder.hiden_size: no such key",
            "did you mean 'model.encoder.hidden_size'",
        ],
    ),
    (variant(objective={"nsp": None}), ["wrong: objective", "no such key"]),
    (variant(objectives=["mlm", "nps"]), ["wrong: ", "no objective is called 'nps'", "'nsp'"]),
    (variant(objectives={"mlm": None, "nsp": None}), ["wrong: model.objectives: found none"]),
    (variant(encoder__causal=True), ["wrong: model.objectives.mlm needs a bidirectional encoder"]),
    (variant(data__input_format="full_sentences"), ["wrong: model.objectives.nsp needs pairs"]),
    (variant(data__max_seq_length=65), ["wrong: data.max_seq_length: found 65", "which is 64"]),
    (variant(data__batch_size=0), ["wrong: data.batch_size: found 0"]),
    (variant(optimizer__learning_rate=-1), ["wrong: model.optimizer.learning_rate: found -1"]),
    (variant(optimizer__learning_rate="high"), ["learning_rate: found 'high', expected a number"]),
    (variant(trainer__max_steps=0), ["wrong: trainer.max_steps: found 0"]),
    (variant(trainer__max_steps=-1), ["wrong: model.optimizer.schedule: "]),
    (variant(trainer__max_time="soon"), ["wrong: trainer.max_time: "]),
    (variant(max_tokens=1000), ["wrong: max_tokens: found trainer.max_steps"]),
    (variant(max_words=1000), ["wrong: max_words: found trainer.max_steps beside it"]),
    (variant(max_words=1e6, max_tokens=1e6), ["wrong: max_words: found max_tokens beside it"]),
    (variant(max_words=-5, trainer__max_steps=-1), ["wrong: max_words: found -5"]),
    (variant(max_tokens=-5, trainer__max_steps=-1), ["wrong: max_tokens: found -5"]),
    (variant(head="single_sentence"), ["wrong: model.head and model.objectives"]),
    (variant(), ["the variants 'a' and 'wrong' are the same config"]),
    (variant(objectives=["nsp", "mlm"]), ["the variants 'a' and 'wrong' are the same config"]),
    (variant(evaluate__head__dropout=0.3), ["wrong: evaluate: ", "the study has none"]),
    (variant(evaluate__from_step=3), ["wrong: evaluate: ", "the study has none"]),
    (variant(evaluate__from_step=3) | EVALUATED, ["wrong: ", "checkpoint.save_top_k: -1"]),
    (
        variant(evaluate__from_step=4) | EVALUATED | {"settings": STEPS},
        ["found 4", "a multiple of 3"],
    ),
    (
        variant(evaluate__from_step=9) | EVALUATED | {"settings": STEPS},
        ["found 9", "max_steps, which is 6"],
    ),
    (variant(evaluate__init_from="x") | EVALUATED, ["evaluation task of wrong: model.init_from"]),
    (
        variant(evaluate__head__droput=0.3) | EVALUATED,
        ["task of wrong: model.head.droput", "did you mean 'model.head.dropout'"],
    ),
    ({"evaluate": {"x": "base.yaml"}}, ["evaluate.x", "base.yaml has no model.head"]),
    (
        {**EVALUATED, "evaluate_settings": {"data.max_seq_length": 65}},
        ["evaluation task of both: data.max_seq_length: found 65"],
    ),
    (
        {**EVALUATED, "evaluate_settings": {"data.columns": {"txt": "t"}}},
        ["evaluation task of both: data.columns", "did you mean 'text'"],
    ),
    (
        {**EVALUATED, "base": "task.yaml", "variants": {"a": {}, "b": {"head.dropout": 0.3}}},
        ["fine-tunes single_sentence", "no evaluate"],
    ),
    (
        {"budget": {"time": {"minutes": 5}}, "settings": {"optimizer.warmup_steps": 100}},
        ["variant both: model.optimizer.warmup_steps: found 100"],
    ),
]


@pytest.mark.parametrize(("content", "words"), WRONG, ids=[words[0] for _, words in WRONG])
def test_what_does_not_go_together_is_found_before_anything_is_run(
    content: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(tmp_path, **content)
    message = str(caught.value)
    assert message.startswith("study s: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_model_that_is_started_from_decides_on_the_encoder(tmp_path: Path) -> None:
    variants = {
        "a": {"init_from": "runs/ltr", "objectives": ["clm"]},
        "b": {"init_from": "runs/other", "objectives": ["clm"]},
    }
    assert len(plan_of(tmp_path, variants=variants).runs) == 4
