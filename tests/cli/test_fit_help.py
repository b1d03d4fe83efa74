"""The short help of ``fit`` and its like: what a config sets, without torch."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from bertlab.cli.fit_help import COMMON
from bertlab.config.merge import read_request
from bertlab.config.parse import OTHER_NAMES, OTHER_VALUES
from bertlab.config.parser import build_parser
from bertlab.config.yaml_files import keys_of
from bertlab.plugins.index import package_of
from tests.conftest import Command


@pytest.mark.first_fast
@pytest.mark.parametrize("command", COMMON)
def test_every_key_of_the_short_help_exists(command: str) -> None:
    known = set()
    for config in ("quickstart", "finetune/mrpc"):
        parser = build_parser(command, read_request(["--config", config]))
        known |= {action.dest for action in parser._actions}
    short = {"text": "data.text", "text_pair": "data.text_pair", "input": "data.input"}
    # a package opens a command with a key of its own, which the parser never sees
    known |= {"backend"} if package_of("key", "backend") == "bertlab-interop" else set()
    assert {short.get(key, key) for key in COMMON[command]} <= known


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_the_short_help_shows_the_key_of_onnx(command: str, bertlab: Command) -> None:
    assert "--backend" in bertlab(command, "--help")[1]


@pytest.mark.slow
def test_names_of_other_programs_stand_for_keys_that_exist() -> None:
    known = set()
    for config in ("quickstart", "finetune/mrpc", "recipes/modern"):
        known |= keys_of(build_parser("fit", read_request(["--config", config])))
    assert set(OTHER_NAMES.values()) - known == {"bertlab export --push"}
    # a key of ours means itself; a number for our section of seeds means another
    assert OTHER_NAMES.keys() & known == {"seed"}
    precision = build_parser("fit", read_request([]))._option_string_actions["--trainer.precision"]
    literals = [choice for form in get_args(precision._typehint) for choice in get_args(form)]
    assert set(OTHER_VALUES.values()) <= set(literals)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--epochs", "3"], "did you mean 'trainer.max_epochs'?"),
        (["--seed", "3"], "did you mean 'seed_everything'?"),
        (["--num-train-epochs=3"], "did you mean 'trainer.max_epochs'?"),
        (["--model.lr", "1"], "did you mean 'model.optimizer.learning_rate'?"),
        (["--trainer.precision", "fp16"], "did you mean '16-mixed'?"),
        (["data.batch_size=16"], "an option begins with --: --data.batch_size=16"),
        (["--model.optimizer.learning_rate", "-1e-4"], "found -0.0001, expected above 0"),
    ],
)
def test_what_is_meant(given: list[str], meant: str, tiny_config: Path, bertlab: Command) -> None:
    code, _, error = bertlab("fit", tiny_config, *given)
    assert code == 2
    assert meant in error


def test_what_a_config_sets(bertlab: Command) -> None:
    code, output, _ = bertlab("fit", "quickstart", "--help")
    assert code == 0
    assert "\n  --trainer.max_steps 3000\n" in output
    assert "\n  --model.encoder.preset tiny\n" in output
    assert "--help all" in output
    code, output, _ = bertlab("fit", "--help")
    assert "finetune/mrpc" in output.split()
    assert all(len(line) <= 100 for line in output.splitlines())


def test_all_keys(bertlab: Command) -> None:
    with pytest.raises(SystemExit):
        bertlab("fit", "quickstart", "--help", "all")


@pytest.mark.parametrize(
    ("argv", "which"),
    [
        (["-h"], "short"),
        (["--help", "--data.text", "a"], "short"),
        (["--help", "all"], "all"),
        ([], ""),
    ],
)
def test_which_help(argv: list[str], which: str) -> None:
    assert read_request(argv).helps == which


@pytest.mark.slow
def test_the_short_help_needs_no_torch() -> None:
    program = """
import sys
from bertlab.cli.main import main
for command in ("fit", "validate", "test", "predict"):
    assert main([command, "--help"]) == 0
assert main(["fit", "finetune/mrpc", "--help"]) == 0
assert not {"torch", "lightning", "jsonargparse"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"usage: ") == 5
