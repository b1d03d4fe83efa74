"""The short help of ``fit`` and its like: what a config sets, without torch."""

import subprocess
import sys

import pytest

from bertlab.cli.fit_help import COMMON, asks_for_help, without_all
from bertlab.config.parser import build_parser
from bertlab.config.request import read_request
from tests.conftest import Command


@pytest.mark.parametrize("command", COMMON)
def test_every_key_of_the_short_help_exists(command: str) -> None:
    known = set()
    for config in ("quickstart", "finetune/mrpc"):
        parser = build_parser(command, read_request(["--config", config]))
        known |= {action.dest for action in parser._actions}
    short = {"text": "data.text", "text_pair": "data.text_pair", "input": "data.input"}
    assert {short.get(key, key) for key in COMMON[command]} <= known


def test_what_a_config_sets(bertlab: Command) -> None:
    code, output, _ = bertlab("fit", "quickstart", "--help")
    assert code == 0
    assert "\n  --trainer.max_steps 2500\n" in output
    assert "\n  --model.encoder.preset tiny\n" in output
    assert "--help all" in output
    code, output, _ = bertlab("fit", "--help")
    assert "finetune/mrpc" in output.split()
    assert all(len(line) <= 100 for line in output.splitlines())


def test_all_keys(bertlab: Command) -> None:
    with pytest.raises(SystemExit):
        bertlab("fit", "quickstart", "--help", "all")


@pytest.mark.parametrize(
    ("argv", "short"), [(["-h"], True), (["a", "--help", "all"], False), (["a"], False)]
)
def test_which_help(argv: list[str], short: bool) -> None:
    assert asks_for_help(argv) == short
    assert "all" not in without_all(argv)


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
