"""Variants with ``stages``: what they cost, what is checked, and how far they are."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from bertlab.errors import ConfigError
from bertlab.training.run import Run
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.run_state import State, is_resumable, last_step, read_states
from bertlab_studies.plan.budget import pretraining_cost
from bertlab_studies.plan.measures import pretraining_measures
from bertlab_studies.plan.plan import make_plan
from bertlab_studies.plan.stages import read_stages
from bertlab_studies.plan.study_file import make_study
from bertlab_studies.report.run_costs import stage_cost
from small_study import plan_of, read_study, write_yaml
from tests.conftest import Command

STAGES = {
    "short": {"share": 0.5, "data.max_seq_length": 16, "objectives": {"nsp": None}},
    "long": {"share": 0.5, "data.batch_size": 4},
}


def test_a_variant_costs_what_its_stages_do_together(tmp_path: Path) -> None:
    # the run of each stage, as a variant of its own
    alone = {
        name: {
            **{key: value for key, value in stage.items() if key != "share"},
            "trainer.max_steps": 3,
        }
        for name, stage in STAGES.items()
    }
    plan = plan_of(tmp_path, variants={"one": {}, "two": {"stages": STAGES}, **alone})
    costs = {name: pretraining_cost(plan.configs[name, "base"]) for name in ("two", *alone)}
    two, *parts = costs.values()
    assert two is not None
    assert two.tokens == 3 * 8 * 16 + 3 * 4 * 32
    assert two.flops == sum(part.flops for part in parts if part is not None)
    assert plan.run_of("two", "base", 1).steps == 6


def test_another_order_is_another_variant(tmp_path: Path) -> None:
    turned = dict(reversed(STAGES.items()))
    plan = plan_of(tmp_path, variants={"up": {"stages": STAGES}, "down": {"stages": turned}})
    up, down = (plan.run_of(name, "base", 1) for name in ("up", "down"))
    assert up.id != down.id
    argument = next(each for each in down.arguments if each.startswith("--stages="))
    assert argument.index("long") < argument.index("short")


@pytest.mark.slow
def test_the_last_stage_decides(tmp_path: Path) -> None:
    long = {"long": {"share": 0.5}}
    causal = {"first": {"share": 0.5, "encoder.causal": True, "objectives": ["clm"]}, **long}
    variants = {
        "one": {},
        "two": {"stages": {"a": {"share": 0.5}, **long}},
        "causal": {"stages": causal},
    }
    study = read_study(tmp_path, variants=variants, decide=["mlm loss"])
    assert pretraining_measures(study, make_plan(study)).deciding == ("mlm loss",)
    variants["other"] = {
        "stages": {**long, "a": {"share": 0.5, "objectives": ["clm"], "encoder.causal": True}}
    }
    study = read_study(tmp_path, variants=variants, decide=["mlm loss"])
    with pytest.raises(StudyError, match="not all variants have the same mlm"):
        pretraining_measures(study, make_plan(study))


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"variants": {"a": {}, "b": {"stages": {"x": {"share": 1}}}}},
            ["variant b", "two or more"],
        ),
        (
            {
                "variants": {
                    "a": {},
                    "b": {"stages": {**STAGES, "long": {"share": 0.5, "data.max_seq_length": 65}}},
                }
            },
            ["variant b: stages.long: data.max_seq_length: found 65", "at most"],
        ),
        (
            {"settings": {"stages": STAGES}, "budget": {"time": {"minutes": 1}}},
            ["trainer.max_time", "beside stages"],
        ),
        ({"settings": {"stages": STAGES}, "budget": {"steps": 1}}, ["stages.short.share"]),
        (
            {
                "settings": {"stages": STAGES, "checkpoint.save_top_k": -1},
                "variants": {"a": {}, "b": {"evaluate.from_step": 3}},
                "evaluate": ["task.yaml"],
            },
            ["variant b: evaluate.from_step: found 3 beside stages"],
        ),
    ],
)
def test_what_does_not_fit_is_said(
    content: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(StudyError) as caught:
        plan_of(tmp_path, **content)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_steps_of_stages_are_counted_on(tmp_path: Path) -> None:
    run = plan_of(tmp_path, settings={"stages": STAGES}).in_order()[0]
    directory = run.directory(tmp_path)
    assert last_step(directory) is None
    for place, steps in (("stages/short", 3), (".", 2)):
        log = directory / place / "csv" / "version_0" / "metrics.csv"
        log.parent.mkdir(parents=True)
        log.write_text("step,loss\n" + "".join(f"{step},1\n" for step in range(steps)), "utf-8")
    assert last_step(directory) == 4
    (directory / "csv" / "version_x").mkdir()  # not a run's
    (directory / "csv" / "version_x" / "metrics.csv").write_text("step,loss\n9,1\n")
    assert last_step(directory) == 4
    assert not is_resumable(run, tmp_path)
    (directory / "stages.yaml").touch()
    assert is_resumable(run, tmp_path)


@pytest.mark.nightly
def test_a_study_trains_a_variant_in_stages(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    study = {
        "base": str(tiny_config),
        "settings": {"objectives": {"nsp": None}},
        "variants": {"one": {}, "two": {"stages": STAGES}},
        "seeds": 1,
    }
    file, folder = write_yaml(tmp_path / "s.yaml", study), tmp_path / "study"
    code, output, error = bertlab("study", "run", file, "--study_dir", folder)
    assert code == 0, output + error
    (run,) = (each.parent for each in folder.glob("runs/*/stages.yaml"))
    assert sorted(Run(run).stages) == ["long", "short"]
    parts = [each.manifest["training_tokens"] for each in Run(run).stages.values()]
    plan = make_plan(make_study({"name": "s", **study}, "s.yaml", tmp_path))
    cost = stage_cost(plan, folder, "two", "base", [1])
    assert cost is not None
    assert cost.tokens == sum(parts)
    assert all(state is State.DONE for state in read_states(plan.in_order(), folder).values())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.9, Fraction(9, 10)),
        ("0.9", Fraction(9, 10)),
        (".5", Fraction(1, 2)),
        (1e-05, Fraction(1, 100_000)),
        ("1e-05", Fraction(1, 100_000)),
        ("1/3", Fraction(1, 3)),
    ],
)
def test_a_share_is_exact(given: object, expected: Fraction) -> None:
    stages = read_stages({"x": {"share": given}, "y": {"share": str(1 - expected)}})
    assert [each.share for each in stages] == [expected, 1 - expected]


@pytest.mark.parametrize(
    "given",
    [
        *("1e-30_000_000", "1e-30000000", "1e-999", "9" * 5000, f"1/{'9' * 5000}", "1/0", "0/3"),
        *("half", "1/3/3", "-0.5", "3/2", 1, True, None, float("nan")),
    ],
    ids=lambda each: repr(each)[:15],
)
def test_what_is_no_share_is_refused_at_once(given: object) -> None:
    with pytest.raises(ConfigError, match=r"stages\.x\.share: found .*, expected a share of the"):
        read_stages({"x": {"share": given}, "y": {"share": 0.5}})
