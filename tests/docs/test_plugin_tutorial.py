"""docs/plugin-tutorial.md, run as it is written: every file of it, every command."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bertlab_conformance.scaffold import PluginNames, package_files
from tests.plugins.plugin_environment import PluginEnvironment

TUTORIAL = Path(__file__).parents[2] / "docs" / "plugin-tutorial.md"
NAMES = PluginNames("objective", "bertlab-first-letter", "first_letter")
AS_WRITTEN = ": as written by new-plugin"

# the one thing that is not as written: training is shorter
SHORTER = {
    "max_steps: 2000\n": "max_steps: 4\n",
    "val_check_interval: 500\n": "val_check_interval: 2\n",
    "validation_sequences: 1000\n": "validation_sequences: 20\n",
    "max_epochs: 2,": "max_steps: 4,",
    "--seeds 3 ": "--seeds 1 ",
}


@dataclass
class Block:
    """A fenced block: its language, and its lines."""

    language: str
    content: str

    @property
    def first_line(self) -> str:
        return self.content.split("\n")[0].removeprefix("# ")

    @property
    def after_first_line(self) -> str:
        return self.content.partition("\n")[2]


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


def generated(path: str) -> str:
    return package_files(NAMES)[path.removeprefix(f"{NAMES.package}/")]


def test_the_tutorial_shows_what_new_plugin_writes() -> None:
    (shown,) = [
        block for block in blocks(TUTORIAL.read_text("utf-8")) if AS_WRITTEN in block.first_line
    ]
    assert shown.after_first_line == generated(shown.first_line.removesuffix(AS_WRITTEN))


def test_every_block_is_of_a_kind_that_is_run() -> None:
    text = TUTORIAL.read_text("utf-8")
    assert text.count("```") == 2 * len(blocks(text))
    assert {block.language for block in blocks(text)} == {"bash", "python", "text", "yaml"}
    for found in SHORTER:
        assert text.count(found) == 1, found


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two minutes of one core, and much more where cores are shared
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    environment = PluginEnvironment.create(tmp_path)
    text = TUTORIAL.read_text("utf-8")
    for found, shorter in SHORTER.items():
        text = text.replace(found, shorter)
    refusal = None
    for block in blocks(text):
        if block.language in ("python", "yaml"):
            file = tmp_path / block.first_line.removesuffix(AS_WRITTEN)
            assert AS_WRITTEN not in block.first_line or file.read_text() == block.after_first_line
            file.write_text(block.after_first_line, "utf-8")
        elif block.language == "text" and refusal is not None:
            assert refusal == block.content
            refusal = None
        elif block.language == "bash" and block.first_line == "expected to fail":
            done = environment.run(block.after_first_line, tmp_path)
            assert done.returncode == 2
            refusal = done.stdout
        elif block.language == "bash" and block.first_line != "not run":
            for line in block.content.splitlines():
                environment.expect(line, tmp_path)
    assert (tmp_path / "runs/letters/results.json").exists()
    assert (tmp_path / "runs/studies").is_dir()
    for command in ("check", "format --diff"):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command.split(), "--no-cache", "."],
            cwd=tmp_path / NAMES.package,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
