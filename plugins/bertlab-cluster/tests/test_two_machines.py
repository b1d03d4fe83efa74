"""A study whose runs are divided over two machines, which share nothing but its directory."""

import csv
import json
import os
import stat
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from bertlab_studies.execute.run_state import Outcome, read_attempts
from bertlab_studies.study import study as open_study
from dying_node import DIES
from small_study import BASE, TASK, write_study, write_yaml
from tests.data.web_server import serving

# what lies on the disk of another machine cannot be opened, as if it were not there
SITECUSTOMIZE = """
import errno
import os
import sys

OTHERS = tuple(os.environ["OTHER_DISKS"].split(os.pathsep))


def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir", "os.mkdir"):
        if str(arguments[0]).startswith(OTHERS):
            raise FileNotFoundError(errno.ENOENT, "on another machine", str(arguments[0]))


sys.addaudithook(refuse)
"""
# runs a command as on a machine of its own
NODE = """#!/bin/sh
export BERTLAB_CACHE='{disk}/cache' HOME='{disk}/home' TMPDIR='{disk}/tmp'
export OTHER_DISKS='{others}' {dies}='{disk}/dies'
export PYTHONPATH="{site}:$PYTHONPATH"
exec "$@"
"""
PREDICTIONS = "predictions.jsonl"
CALLBACK = {"class_path": "dying_node.DyingNode"}


@pytest.fixture
def disks(tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The disks of two nodes, and that of the machine which submits, where this test runs."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITECUSTOMIZE)
    disks = [tmp_path / name for name in ("disk-0", "disk-1", "disk-here")]
    for disk in disks:
        for name in ("home", "tmp"):
            (disk / name).mkdir(parents=True)
    for number, disk in enumerate(disks[:2]):
        others = os.pathsep.join(str(each) for each in disks if each is not disk)
        node = slurm / f"node-{number}"
        node.write_text(NODE.format(disk=disk, others=others, site=site, dies=DIES))
        node.chmod(stat.S_IRWXU)
    for name, folder in (("BERTLAB_CACHE", "cache"), ("HOME", "home"), ("TMPDIR", "tmp")):
        monkeypatch.setenv(name, str(disks[2] / folder))
    # for dying_node, which runs import
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    return disks


def write_served_study(folder: Path, served: Path, address: str, text: str) -> Path:
    """Write a study of two variants with a fine-tuning each; text and rows come from a server."""
    lines = [line[:200] for line in text.splitlines() if line][:100]
    rows = [{"text": line, "label": "long" if len(line) > 90 else "short"} for line in lines]
    (served / "topics.txt").write_text(text, "utf-8")
    (served / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    corpus = {
        "corpus": f"{address}/topics.txt",
        "corpus_format": "sentences",
        "validation_fraction": 0.2,
        "validation_sequences": 20,
    }
    length = {"max_steps": 20, "val_check_interval": 5, "callbacks": [CALLBACK]}
    base: dict[str, Any] = {
        **BASE,
        "data": {**BASE["data"], **corpus},
        "trainer": {**BASE["trainer"], **length},
    }
    task: dict[str, Any] = {
        **TASK,
        "data": {**TASK["data"], "source": f"{address}/rows.jsonl", "validation_fraction": 0.3},
    }
    write_yaml(folder / "base.yaml", base)
    write_yaml(folder / "task.yaml", task)
    return write_study(folder, seeds=1, evaluate={"x": "task.yaml"})


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def weights(run: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(run / "checkpoints/last.ckpt", weights_only=True)[
        "state_dict"
    ]
    return found


def losses(run: Path) -> dict[tuple[str, str], set[str]]:
    """Return all that was logged of a loss, by its name and step; a step taken twice has both."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for log in run.glob("csv/*/metrics.csv"):
        with log.open(encoding="utf-8") as lines:
            for line in csv.DictReader(lines):
                for name in line:
                    if "loss" in name and line[name]:
                        found[name, line["step"]].add(line[name])
    return found


def test_what_lies_on_another_machine_cannot_be_opened(disks: list[Path], slurm: Path) -> None:
    (disks[1] / "file").touch()
    for number in range(2):
        command = [slurm / f"node-{number}", sys.executable, "-c", f"open('{disks[1]}/file')"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == (number == 0)
        assert ("on another machine" in done.stderr) == (number == 0)


@pytest.mark.nightly
@pytest.mark.timeout(600)  # each job imports torch, on a machine with other work
def test_two_machines_one_of_which_is_lost_find_what_one_finds(
    disks: list[Path], slurm: Path, tmp_path: Path, corpus_file: Path
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    with serving(served) as address:
        file = write_served_study(tmp_path, served, address, corpus_file.read_text("utf-8"))
        one = open_study(file, tmp_path / "one")
        assert one.run(threads=1).exit_code == 0
        two = open_study(file, tmp_path / "two")
        (disks[1] / "dies").touch()
        first = two.run(executor="slurm", slurm={"cpus_per_task": 1}, retries=0)
        (lost,) = first.failed
        assert len(first.done) == 2  # the other machine went on
        assert list(first.blocked.values()) == [lost]
        assert two.run(executor="slurm", retries=0).exit_code == 0
    jobs = {
        number: (slurm / number / "script").read_text().partition("--job-name=")[2].split()[0]
        for number in ("4711", "4712", "4713", "4714", "4715")
    }
    # an odd number is of the second machine; what was lost there went on at the first one
    assert [number for number, run in jobs.items() if run == lost] == ["4711", "4714"]
    planned = {run.id: run for run in two.runs}
    attempts = read_attempts(planned[lost], two.study_dir)
    assert [(each.resumed, each.outcome is Outcome.DONE) for each in attempts] == [
        (False, False),
        (True, True),
    ]
    assert planned[jobs["4713"]].parent == jobs["4712"]  # weights of the one, used by the other
    assert planned[jobs["4715"]].parent == lost
    for run in two.runs:
        here, there = run.directory(one.study_dir), run.directory(two.study_dir)
        for name in ["results.json"] if run.parent is None else ["results.json", PREDICTIONS]:
            assert (here / name).read_bytes() == (there / name).read_bytes()
        assert losses(here) == losses(there)
        assert weights(here).keys() == weights(there).keys()
        assert all(torch.equal(each, weights(there)[name]) for name, each in weights(here).items())
    assert one.report(write=False).records() == two.report(write=False).records()
    for disk in disks[:2]:  # each prepared the text for itself, and to the same bytes
        assert files(disk / "cache" / "stores") == files(disks[2] / "cache" / "stores") != {}
