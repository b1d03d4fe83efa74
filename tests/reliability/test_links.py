"""A run or study from elsewhere may have links in it: nothing is written through them."""

import ast
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.checkpoints.run_directory import check_nothing_leads_out
from bertlab.errors import OutputError
from bertlab_pages.samples import append_text
from tests.conftest import Command
from tests.test_house import MODULES, OF_PACKAGES, ROOT


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user with a file in it, which stays as it is."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".bashrc").write_text("mine\n", "utf-8")
    yield folder
    assert [path.name for path in folder.iterdir()] == [".bashrc"]
    assert (folder / ".bashrc").read_text("utf-8") == "mine\n"


@pytest.fixture
def run(tiny_run: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "theirs"
    shutil.copytree(tiny_run, copy)
    return copy


def plant(link: Path, target: Path) -> None:
    """Put a link in the place of what is there."""
    if link.is_dir():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(target)


FILES = ["samples.jsonl", "loss_curve.png", "results.json", "checkpoints/last-v1.ckpt", "new.txt"]
FOLDERS = ["csv", "tensorboard", "tokenizer", "evaluations", "csv/version_9", "wandb"]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_no_link_of_a_run_is_followed(
    run: Path, outside: Path, bertlab: Command, name: str
) -> None:
    plant(run / name, outside / ".bashrc" if name in FILES else outside)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert f"{run / name}: is a link that leads out of {run}, to {outside}" in error


def test_a_new_run_takes_no_links_over(
    tmp_path: Path, outside: Path, tiny_config: Path, bertlab: Command
) -> None:
    (tmp_path / "theirs").mkdir()
    plant(tmp_path / "theirs" / "samples.jsonl", outside / ".bashrc")
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", tmp_path / "theirs")
    assert code == 2
    assert "samples.jsonl: is a link" in error


def test_links_that_stay_inside_are_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "wandb" / "run-1").mkdir(parents=True)
    (run / "wandb" / "latest-run").symlink_to("run-1")  # as W&B makes it
    (run / "wandb" / "debug.log").symlink_to("run-1/not-there-yet.log")
    (run / ".venv").mkdir()
    (run / ".venv" / "python").symlink_to("/usr/bin/python3")
    (tmp_path / "name").symlink_to(run)  # the user's own name for it
    check_nothing_leads_out(run)
    check_nothing_leads_out(tmp_path / "name")
    check_nothing_leads_out(tmp_path / "not there")


@pytest.mark.parametrize("target", ["..", "../other", "/dev/null", "a/../../other", "loop"])
def test_what_leads_out_is_refused_however_it_is_written(tmp_path: Path, target: str) -> None:
    run = tmp_path / "run"
    (run / "a").mkdir(parents=True)
    (run / "loop").symlink_to("../run-2")  # a folder whose name begins alike
    (run / "link").symlink_to(target)
    with pytest.raises(OutputError, match="is a link that leads out of"):
        check_nothing_leads_out(run)


def test_a_pipe_in_a_run_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "samples.jsonl")
    with pytest.raises(OutputError, match=r"samples\.jsonl: is a device, a pipe or a socket"):
        check_nothing_leads_out(tmp_path)


def test_a_line_is_added_to_this_name_only(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_text("a\n", "utf-8")
    os.link(theirs, ours)
    append_text(ours, "b\n")
    append_text(ours, "ä\n")
    assert theirs.read_text("utf-8") == "a\n"
    assert ours.read_text("utf-8") == "a\nb\nä\n"
    (tmp_path / "link").symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic"):
        append_text(tmp_path / "link", "c\n")


# modules that open files for writing themselves, in a folder of theirs that is new
IN_NEW_FOLDERS = {
    "bertlab/data/corpus/store_writer.py",
    "plugins/bertlab-evaluations/bertlab_evaluations/take_words.py",
    "plugins/bertlab-conformance/bertlab_conformance/checks/exchange.py",
    "plugins/bertlab-studies/bertlab_studies/execute/execution.py",  # locks, without links
}


@pytest.mark.slow
def test_files_are_opened_for_writing_in_one_place() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in [*MODULES, *OF_PACKAGES]
        if "bertlab/files" not in str(path) and any(writes_of(path.read_text("utf-8")))
    }
    assert found == IN_NEW_FOLDERS, "use bertlab.files: whole or absent, and through no link"


@pytest.mark.parametrize(
    "code",
    [
        "open(path, 'w')",
        "path.open(mode='ab')",
        "io.open(path, 'x+b')",
        "path.write_text(text)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "figure.savefig(folder / 'a.png')",
    ],
)
def test_writes_are_found(code: str) -> None:
    assert list(writes_of(code)) == [1]
    assert list(writes_of("path.open('rb'); file.write(text); write_text(path, text)")) == []


WRITING = {"O_WRONLY", "O_RDWR", "O_CREAT"}
WORDS = re.compile(r"\bopen\(|\.write_(text|bytes)\(|\bsavefig\(")  # no call without one of these


def writes_of(code: str) -> Iterator[int]:
    """Yield the lines of a module that open a file for writing, or have that done."""
    if not WORDS.search(code):
        return
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        called, name = node.func, getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = [*node.args, *(each.value for each in node.keywords)]
        modes = {each.value for each in given if isinstance(each, ast.Constant)}
        flags = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
        if (
            (name == "open" and any(re.fullmatch("[rbt]*[wax+][rbt+]*", str(m)) for m in modes))
            or (name == "open" and flags & WRITING and "devnull" not in flags)
            or (name in {"write_text", "write_bytes"} and isinstance(called, ast.Attribute))
            or (name == "savefig" and isinstance(given[0], ast.BinOp))
        ):
            yield node.lineno
