"""The notebooks in the wheel are those of the site, and `bertlab notebooks` copies them."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from bertlab.cli.main import main
from bertlab_pages.notebooks_command import notebooks

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "executed_notebooks.py"))
MOST_BYTES = 150_000
FEW = {  # in place of what makes a notebook's runs long
    r'"trainer.max_(steps|epochs)": \d+': '"trainer.max_steps": 4, "trainer.log_every_n_steps": 1',
    r'"steps": \d+': '"steps": 4',
    r'"trainer.val_check_interval": \d+': '"trainer.val_check_interval": 2',
    r'"data.validation_sequences": \d+': '"data.validation_sequences": 20',
}


def test_every_notebook_of_the_site_is_there() -> None:
    assert [path.stem for path in notebooks()] == SCRIPT["NAMES"]


@pytest.mark.parametrize("name", SCRIPT["NAMES"])
def test_cells_are_those_of_the_page(name: str) -> None:
    text = (SCRIPT["NOTEBOOKS"] / f"{name}.ipynb").read_text("utf-8")
    cells = json.loads(text)["cells"]
    found = [(each["cell_type"], "".join(each["source"])) for each in cells]
    assert found == SCRIPT["cells_of"](name), "run docs/executed_notebooks.py again"
    code = [each for each in cells if each["cell_type"] == "code"]
    assert [each["execution_count"] for each in code] == list(range(1, len(code) + 1))
    outputs = [each for cell in code for each in cell["outputs"]]
    assert outputs
    assert not [each for each in outputs if each["output_type"] == "error"]
    assert len(text) <= MOST_BYTES
    assert "/tmp/" not in text
    assert "site-packages" not in text


OTHERS = [each for each in SCRIPT["NAMES"] if each not in ("quickstart", "colab")]


def in_few_steps(source: str) -> str:
    for pattern, text in FEW.items():
        source = re.sub(pattern, text, source)
    return source


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["quickstart", *OTHERS])
def test_cells_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient", reason="comes with the extra docs")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    made = SCRIPT["run"](name, str(tmp_path), in_few_steps)
    printed = [
        each.text for cell in made.cells for each in cell.get("outputs", ()) if "text" in each
    ]
    assert "bertlab: error" not in "".join(printed)  # of a command, which ends no cell


def test_links_lead_somewhere() -> None:
    for path in notebooks():
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
            if link.startswith(SCRIPT["SITE"]):
                file = link.removeprefix(f"{SCRIPT['SITE']}/").partition("#")[0]
                assert (ROOT / file).is_file(), link
            elif not link.startswith("https://"):
                assert path.with_name(link).is_file(), link


def test_the_command_copies_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "notebooks"
    assert main(["notebooks", str(folder)]) == 0
    assert "inside.ipynb" in capsys.readouterr().out
    for path in notebooks():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    (folder / "study.ipynb").unlink()
    (folder / "inside.ipynb").write_text("mine")
    assert main(["notebooks", str(folder)]) != 0
    assert "has colab.ipynb, finetune.ipynb, inside.ipynb" in capsys.readouterr().err
    assert (folder / "inside.ipynb").read_text() == "mine"
    assert not (folder / "study.ipynb").exists()


@pytest.mark.slow
def test_the_wheel_has_them(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", str(tmp_path), str(ROOT / "plugins/bertlab-pages")], check=True)
    (wheel,) = tmp_path.glob("bertlab_pages-*.whl")
    with ZipFile(wheel) as opened:
        names = {Path(each).name for each in opened.namelist()}
    assert {path.name for path in notebooks()} <= names
