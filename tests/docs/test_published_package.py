"""The commands of docs/plugins.md that go from nothing to a published package, run as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bertlab_conformance.scaffold import PluginNames, package_files
from tests.plugins.plugin_environment import PluginEnvironment

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")
SECTION = PAGE.partition("## From nothing to a published package\n")[2].partition("\n## ")[0]
NAMES = PluginNames("objective", "bertlab-first-letter", "first_letter")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)


def test_the_entry_point_is_what_new_plugin_writes() -> None:
    (shown,) = blocks("toml")
    assert shown.strip() in package_files(NAMES)["pyproject.toml"]


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # two minutes of one core, and much more where cores are shared
def test_the_commands_work_as_written(tmp_path: Path) -> None:
    environment = PluginEnvironment.create(tmp_path)
    run = [block for block in blocks("bash") if not block.startswith("# not run")]
    for line in "".join(run).splitlines():
        environment.expect(line, tmp_path)
    assert (tmp_path / "runs/first/results.json").exists()
    for command in ("check", "format --diff"):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command.split(), "--no-cache", "."],
            cwd=tmp_path / NAMES.package,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
