"""Places that are not there: refused in bertlab's own words, before PyTorch is imported."""

import subprocess
import sys
from pathlib import Path

import pytest

# as the command line, in a process that has not imported torch; 2 and no torch, or it fails
_RUN = (
    "import sys; from bertlab.cli.main import main; code = main(sys.argv[1:]);"
    "sys.exit(9 if 'torch' in sys.modules else code)"
)


def _refusal(folder: Path, *arguments: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2, found.stderr
    return found.stderr


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--data.source", "row.csv"], "row.csv: no such file or folder in"),
        (["--data.source", "row.csv"], "did you mean 'rows.csv'?"),
        (["--data.source", "empty.csv"], "empty.csv: holds no rows; leave it out or fill it"),
        (["--data.source", "head.csv"], "head.csv: holds no rows but the header"),
        (
            ["--data.source", "rows.csv", "--data.columns", "{text: txt, label: lable}"],
            "no column 'txt', which 'text' comes from; did you mean 'text'?; no column 'lable'",
        ),
        (["--model.init_from", "run/mine"], "run/mine: no such folder; did you mean 'mini'?"),
    ],
)
def test_fit(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "rows.csv").write_text("text,label\nfine,good\n", "utf-8")
    (tmp_path / "empty.csv").write_text("", "utf-8")
    (tmp_path / "head.csv").write_text("text,label\n", "utf-8")
    (tmp_path / "run" / "mini").mkdir(parents=True)
    given = ("fit", "--model.head", "single_sentence", "--model.init_from", "run/mini")
    assert words in _refusal(tmp_path, *given, *arguments)


@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["predict", "--text", "x"],
            "predict: no model; expected one first, as in bertlab predict runs/quickstart",
        ),
        (["predict", "run/mine", "--text", "x"], "run/mine: no such run or checkpoint"),
        (["test", "./mine"], "--ckpt_path: ./mine: no such run or checkpoint"),
        (["predict", "run", "--input", "new.csv"], "new.csv: no such file or folder"),
        (["explain", "E999"], "explain: found 'E999'"),
    ],
)
def test_other_commands(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "run").mkdir()
    assert words in _refusal(tmp_path, *arguments)
