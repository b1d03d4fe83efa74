"""A study in one line."""

from pathlib import Path

import pytest

from bertlab_studies.execute.schedule import Summary
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.study import Study
from small_study import opened, write_study
from tests.conftest import Command


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Study, dict[str, object]]]:
    """What would have been run: studies and options."""
    found: list[tuple[Study, dict[str, object]]] = []

    def run(study: Study, **options: object) -> Summary:
        found.append((study, options))
        return Summary()

    monkeypatch.setattr(Study, "run", run)
    return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A config file in the working directory."""
    write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    return "base.yaml"


@pytest.mark.slow
def test_a_line_is_the_study_of_a_file(
    tmp_path: Path,
    config: str,
    bertlab: Command,
    asked: list[tuple[Study, dict[str, object]]],
) -> None:
    code, _, err = bertlab(
        *("ablate", "--config", config, "--vary", "objectives=[mlm],[mlm, nsp]"),
        *("--vary=objectives.mlm.rate=0.15,0.3", "--set", "trainer.max_steps=9"),
        *("--set", "optimizer.betas=[0.9, 0.98]", "--seeds", "[3, 5]"),
        *("--evaluate", "task.yaml", "--evaluate_set", "trainer.max_epochs=1", "--workers", "2"),
    )
    assert code == 0, err
    ((study, options),) = asked
    expected = opened(
        tmp_path,
        variants=None,
        axes={"objectives": [["mlm"], ["mlm", "nsp"]], "objectives.mlm.rate": [0.15, 0.3]},
        settings={"trainer.max_steps": 9, "optimizer.betas": [0.9, 0.98]},
        seeds=[3, 5],
        evaluate=["task.yaml"],
        evaluate_settings={"trainer.max_epochs": 1},
    )
    assert study.runs == expected.runs
    assert study.config.baseline == "objectives=mlm rate=0.15"
    assert study.study_dir == Path("runs/studies/ablate-base-objectives-rate")
    assert options["workers"] == 2
    assert not study.study_dir.exists()


def test_keys_are_given_as_to_fit(
    config: str, bertlab: Command, asked: list[tuple[Study, dict[str, object]]]
) -> None:
    code, _, err = bertlab(
        *("ablate", "--config", config, "--vary", "objectives=[mlm,nsp],[mlm]"),
        *("--trainer.max_steps", "9", "--encoder.num_hidden_layers=1", "--workers", "2"),
    )
    assert code == 0, err
    trained = asked[0][0].planned.configs.values()
    assert {each["trainer"]["max_steps"] for each in trained} == {9}
    assert {each["model"]["encoder"]["num_hidden_layers"] for each in trained} == {1}
    for arguments, message in (
        (["--trainer.max_step", "9"], "did you mean"),
        (["--trainer.max_steps"], "--trainer.max_steps: expected a value"),
        (["--run_dir", "x"], "--set: run_dir: cannot be set here; runs are kept in the directory"),
        (["--wokers", "2"], "workers"),
    ):
        code, _, err = bertlab("ablate", "--config", config, "--vary", "x=1,2", *arguments)
        assert code == 2
        assert message in err


def test_settings_of_one_evaluation_are_passed_on(
    config: str, bertlab: Command, asked: list[tuple[Study, dict[str, object]]]
) -> None:
    code, _, err = bertlab(
        *("ablate", "--config", config, "--vary", "objectives=[mlm,nsp],[mlm]"),
        *("--evaluate", "task.yaml", "--evaluate", "other.yaml"),
        *("--evaluate_set", "task.trainer.max_epochs=7", "--evaluate_set", "data.batch_size=4"),
    )
    assert code == 0, err
    configs = asked[0][0].planned.configs
    found = {
        stage: (each["trainer"]["max_epochs"], each["data"]["batch_size"])
        for (_, stage), each in configs.items()
        if stage != BASE
    }
    assert found == {"task": (7, 4), "other": (2, 4)}


def test_three_seeds_and_no_evaluation_by_default(
    config: str, bertlab: Command, asked: list[tuple[Study, dict[str, object]]]
) -> None:
    code, _, err = bertlab(
        *("ablate", "--config", config, "--vary", "encoder.num_hidden_layers=1,2"),
        *("--study_dir", "here"),
    )
    assert code == 0, err
    study = asked[0][0]
    assert study.config.seeds == (1, 2, 3)
    assert study.study_dir == Path("here")
    layers = [
        study.planned.configs[variant.name, BASE]["model"]["encoder"]["num_hidden_layers"]
        for variant in study.config.variants
    ]
    assert layers == [1, 2]


def test_usage(bertlab: Command) -> None:
    for arguments in ((), ("--help",)):
        code, out, _ = bertlab("ablate", *arguments)
        assert code == 0
        assert "--vary" in out


VARY = ["--vary", "objectives=[mlm],[mlm,nsp]"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (VARY, ["expected one config and --vary"]),
        (["--config", "base.yaml"], ["expected one config and --vary"]),
        (["--config", "base.yaml", "--config", "base.yaml", *VARY], ["expected one config"]),
        (["--config", "bse.yaml", *VARY], ["no such config file", "did you mean 'base.yaml'"]),
        (["--config", "base.yaml", "--vary"], ["--vary: expected a value"]),
        (["--config", "base.yaml", "--vary", "objectives"], ["--vary: found 'objectives'"]),
        (["--config", "base.yaml", "--vary", "x=1"], ["expected KEY=VALUE,VALUE"]),
        (["--config", "base.yaml", "--vary", "x=[1,"], ["--vary: cannot read"]),
        (["--config", "base.yaml", *VARY, *VARY], ["--vary: objectives is there twice"]),
        (["--config", "base.yaml", "--vary", "foo=1,2"], ["foo=1: foo: no such key"]),
        (["--config", "base.yaml", "--vary", "encoder.causal=false,true"], ["bidirectional"]),
        (["--config", "base.yaml", *VARY, "--set", "x"], ["--set: found 'x'"]),
        (["--config", "base.yaml", *VARY, "--seeds", "0"], ["seeds: found 0"]),
        (["--config", "base.yaml", *VARY, "--seeds", "["], ["--seeds: cannot read"]),
        (["--config", "base.yaml", *VARY, "--evaluate", "no.yaml"], ["no such config file"]),
        (["--config", "base.yaml", *VARY, "--evaluate", "{loss: {}"], ["--evaluate: cannot read"]),
        (["--config", "base.yaml", *VARY, "--worker", "2"], ["did you mean 'workers'"]),
        (["bse.yaml", *VARY], ["no such config file", "did you mean 'base.yaml'"]),
        (["base.yaml", "--config", "base.yaml", *VARY], ["expected one config"]),
    ],
    ids=lambda each: " ".join(each) if each else "nothing",
)
def test_a_wrong_line_gets_one_line_and_leaves_nothing(
    arguments: list[str], words: list[str], config: str, tmp_path: Path, bertlab: Command
) -> None:
    before = set(tmp_path.rglob("*"))
    code, _, err = bertlab("ablate", *arguments)
    assert code == 2
    assert err.startswith("bertlab: error E")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert set(tmp_path.rglob("*")) == before
