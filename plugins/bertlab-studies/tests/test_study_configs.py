"""The shipped studies ask what they say: the paper's rows, which differ in nothing else."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertlab.config.yaml_files import Config
from bertlab.objectives.masking import MaskingRecipe
from bertlab_studies.plan.plan import variant_settings
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.study import Study
from bertlab_studies.study import study as open_study

CONFIGS = Path(__file__).parents[3] / "configs"
STUDIES = sorted(path.stem for path in (CONFIGS / "studies").glob("*.yaml"))
OBJECTIVES = r"model\.objectives\.\w+(\.\w+)?"
CAUSAL = r"model\.encoder\.causal"
RECIPE_OF_A_HEAD = r"model\.head\.\w+|model\.optimizer\.learning_rate|trainer\.max_epochs"
# study, with its small twin: the keys that its question is about
ABOUT = {
    "quickstart": rf"{OBJECTIVES}|{CAUSAL}|packages: model\.from_scratch",
    "tuned-quickstart": r"model\.objectives\.nsp",
    "nsp": rf"{OBJECTIVES}|{CAUSAL}|\w+: model\.encoder\.bilstm_layers",
    "model-size": r"model\.encoder\.(num_hidden_layers|hidden_size|num_attention_heads)",
    "features": rf"(conll2003: )?({RECIPE_OF_A_HEAD})",
    "steps": rf"{OBJECTIVES}|{CAUSAL}|evaluate\.from_step",
    "masking": r"model\.objectives\.mlm\.(mask|keep|random)_share",
    "masking-rate": r"model\.objectives\.mlm\.rate",
    "whole-word": r"model\.objectives\.mlm\.unit",
    "static-masking": r"model\.objectives\.mlm\.(dynamic|static_copies)",
    "input-format": r"data\.input_format|model\.objectives\.nsp",
}
MIXTURES = ["80/10/10", "100/0/0", "80/0/20", "80/20/0", "0/20/80", "0/0/100"]
FEATURES = [
    "fine-tuning",
    "embeddings",
    "second-to-last hidden",
    "last hidden",
    "weighted sum last four hidden",
    "concat last four hidden",
]
FORMATS = ["segment pairs", "sentence pairs", "full sentences", "doc sentences"]
ROWS = {
    "nsp": ["mlm+nsp", "mlm", "ltr", "ltr+bilstm"],
    "model-size": [
        f"L={layers} H={width} A={heads}"
        for layers, width, heads in (
            *((3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 768, 12)),
            *((12, 1024, 16), (24, 1024, 16)),
        )
    ],
    "features": [*FEATURES, "weighted sum all 12 layers"],
    "features-small": [*FEATURES, "weighted sum all 6 layers"],
    "steps": [f"{name} {n}00k" for name in ("mlm", "ltr") for n in (2, 4, 6, 8, 10)],
    "masking": MIXTURES,
    "masking-rate": [f"rate={rate}" for rate in (0.15, 0.2, 0.3, 0.4, 0.5, 0.6)],
    "whole-word": ["token", "whole word", "span"],
    "static-masking": ["static", "dynamic"],
    "input-format": [
        f"{name}{loss}"
        for name in FORMATS
        for loss in ((" + nsp", "") if "pairs" in name else ("",))
    ],
}  # fmt: skip
SAME_ROWS = ("nsp", "masking", "whole-word", "static-masking", "input-format")
TASKS = {
    "nsp": ["mnli", "qnli", "mrpc", "sst2", "squad"],
    "model-size": ["mnli", "mrpc", "sst2"],
    "features": [],
    "steps": ["mnli"],
    "masking": ["mnli", "ner", "ner_features"],
}


@cache
def study(name: str) -> Study:
    return open_study(str(CONFIGS / "studies" / f"{name}.yaml"))


def question(name: str) -> str:
    return name.removesuffix("-small")


def test_every_study_has_a_small_twin() -> None:
    assert set(STUDIES) == {
        *ABOUT,
        *(f"{name}-small" for name in ABOUT if "quickstart" not in name),
    }


@pytest.mark.first_slow
@pytest.mark.parametrize("name", STUDIES)
def test_variants_differ_in_what_the_question_is_about(name: str) -> None:
    found = study(name)
    settings = variant_settings(found.planned, found.config)
    keys = {key for each in settings.values() for key in each}
    assert keys
    assert not [key for key in keys if not re.fullmatch(ABOUT[question(name)], key)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "features"])
def test_the_budget_is_the_same_for_each_variant(name: str) -> None:
    found = study(name)
    budgets = {
        str(
            [
                *(config["trainer"][key] for key in ("max_steps", "max_epochs", "max_time")),
                *(config["data"][key] for key in ("batch_size", "batch_tokens", "max_seq_length")),
                config["model"]["optimizer"],
                config["max_tokens"],
            ]
        )
        for (_, stage), config in found.planned.configs.items()
        if stage == BASE
    }
    assert len(budgets) == 1
    assert all(run.steps for run in found.runs if run.stage == BASE)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name.endswith("-small")])
def test_a_twin_is_small_and_asks_the_same(name: str) -> None:
    found, large = study(name), study(question(name))
    assert question(name) not in SAME_ROWS or names(name) == names(question(name))
    assert found.config.baseline in names(name)
    widths = {
        config["model"]["encoder"]["hidden_size"] or 128
        for (_, stage), config in found.planned.configs.items()
        if stage == BASE
    }
    assert max(widths) <= 192
    assert {config["model"]["encoder"]["preset"] for config in base_configs(found)} == {"tiny"}
    assert max(run.steps or 0 for run in found.runs if run.stage == BASE) <= 4000
    assert len(found.config.evaluations) <= max(3, len(large.config.evaluations))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_rows_are_those_of_the_table(name: str) -> None:
    assert names(name) == ROWS[name]
    tasks = [evaluation.name for evaluation in study(name).config.evaluations]
    assert name not in TASKS or tasks == TASKS[name]


@pytest.mark.slow
def test_sizes_are_what_the_rows_say() -> None:
    for name in ("model-size", "model-size-small"):
        found = study(name)
        preset = {"base": (12, 768, 12), "tiny": (2, 128, 2)}
        for variant in found.config.variants:
            encoder = found.planned.configs[variant.name, BASE]["model"]["encoder"]
            keys = ("num_hidden_layers", "hidden_size", "num_attention_heads")
            given = zip(keys, preset[encoder["preset"]], strict=True)
            layers, width, heads = (encoder[key] or default for key, default in given)
            assert variant.name == f"L={layers} H={width} A={heads}"


@pytest.mark.slow
def test_mixtures_are_what_the_rows_say() -> None:
    for name in ("masking", "masking-small"):
        found = study(name)
        for variant in found.config.variants:
            mlm = found.planned.configs[variant.name, BASE]["model"]["objectives"]["mlm"]
            recipe = MaskingRecipe(
                **{key: mlm[key] for key in ("mask_share", "keep_share", "random_share")}
            )
            shares = (recipe.mask_share, recipe.keep_share, recipe.random_share)
            assert variant.name == "/".join(f"{100 * share:g}" for share in shares)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS["features"][1:])
def test_features_are_the_recipes_of_table_7(row: str) -> None:
    stem = row.replace(" hidden", "").replace(" 12 layers", "").replace(" ", "-")
    path = CONFIGS / "finetune" / f"conll2003-features-{stem}.yaml"
    recipe = yaml.safe_load(path.read_text("utf-8"))
    config = study("features").planned.configs[row, BASE]
    for section in ("model", "data", "trainer"):
        assert_within(recipe[section], config[section])


def assert_within(recipe: dict[str, Any], config: dict[str, Any]) -> None:
    for key, value in recipe.items():
        if isinstance(value, dict):
            assert_within(value, config[key])
        else:
            assert config[key] == value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["steps", "steps-small"])
def test_a_checkpoint_is_kept_at_each_step_that_is_asked(name: str) -> None:
    found = study(name)
    assert len([run for run in found.runs if run.stage == BASE]) == 2 * len(found.config.seeds)
    for variant in found.config.variants:
        trainer = found.planned.configs[variant.name, BASE]["trainer"]
        assert trainer["accumulate_grad_batches"] == 1
        assert variant.from_step is not None
        assert variant.from_step % trainer["val_check_interval"] == 0
        assert variant.from_step <= trainer["max_steps"]
        assert variant.name.split()[1] == f"{variant.from_step // 1000}k"


@pytest.mark.slow
def test_shared_pre_trainings_are_run_once() -> None:
    for name, each_seed in (("nsp", 3), ("nsp-small", 3), ("features-small", 1)):
        found = study(name)
        bases = [run for run in found.runs if run.stage == BASE]
        assert len(bases) == each_seed * len(found.config.seeds)


def names(name: str) -> list[str]:
    return [variant.name for variant in study(name).config.variants]


def base_configs(found: Study) -> list[Config]:
    return [config for (_, stage), config in found.planned.configs.items() if stage == BASE]
