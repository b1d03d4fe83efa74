"""A run in stages that is killed again and again ends as if it had not been, bit by bit."""

import multiprocessing
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from bertlab.cli.main import main

STAGES = [
    {"name": "causal", "share": 0.3, "encoder.causal": True, "objectives": ["clm"]},
    {"name": "masked", "share": 0.4, "objectives.mlm.rate": {"from": 0.4, "to": 0.2}},
    {"name": "long", "share": 0.3, "data.max_seq_length": 48},
]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_workers = multiprocessing.get_context("forkserver")
_workers.set_forkserver_preload(["bertlab_studies.staged_run"])


def fit(arguments: list[str], place: str, other: str, fatal: int) -> None:
    """Run ``bertlab fit``, killed at the ``fatal``-th file that it makes or moves in a place."""
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    done = 0

    def count(event: str, values: tuple[Any, ...]) -> None:
        nonlocal done
        changes = event in ("os.rename", "os.mkdir", "os.remove") or (
            event == "open" and bool(values[2] & WRITES)
        )
        path = str(values[0]) if changes else ""
        if path.startswith(place) and not path.startswith(other):
            done += 1
            if done == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    os._exit(main(["fit", *arguments]))


def start(arguments: list[str], run: Path, stage: str = "", fatal: int = 0) -> int | None:
    """Go on with a run; return the exit code, which is below 0 if it was killed."""
    stages = run / "stages"
    place, other = (run, stages) if stage == "long" else (stages / stage, run / "none")
    command = [*arguments, "--run_dir", str(run)]
    process = _workers.Process(target=fit, args=(command, f"{place}/", f"{other}/", fatal))
    process.start()
    process.join()
    return process.exitcode


def ends(run: Path) -> list[dict[str, Any]]:
    places = [run / "stages" / "causal", run / "stages" / "masked", run]
    found: list[dict[str, Any]] = []
    for place in places:
        content = torch.load(place / "checkpoints" / "last.ckpt", weights_only=True)
        state = content["optimizer_states"][0]["state"]
        found.append(
            {
                "step": content["global_step"],
                "results": (place / "results.json").read_text("utf-8"),
                **content["state_dict"],
                **{
                    f"{number}/{name}": each
                    for number, of_parameter in state.items()
                    for name, each in of_parameter.items()
                },
            }
        )
    return found


@pytest.fixture(scope="module")
def arguments(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    content = yaml.safe_load(tiny_config.read_text("utf-8"))
    content["model"]["encoder"]["hidden_dropout_prob"] = 0.1
    content["model"] |= {
        "objectives": ["mlm"],
        "init_optimizer": True,
        "optimizer": {"name": "muon", "learning_rate": 1e-3},
    }
    content["trainer"] |= {"max_steps": 20, "val_check_interval": 2}
    content["checkpoint"] = {"save_top_k": 1}
    path = tmp_path_factory.mktemp("killed") / "staged.yaml"
    path.write_text(yaml.safe_dump({**content, "stages": STAGES}, sort_keys=False), "utf-8")
    return ["--config", str(path), "--ckpt_path", "last"]


@pytest.fixture(scope="module")
def whole(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    assert start(arguments, run) == 0
    return run


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills_change_nothing(seed: int, arguments: list[str], whole: Path, tmp_path: Path) -> None:
    run, numbers = tmp_path / "run", random.Random(seed)
    for stage in ("causal", "masked", "long"):
        # where it begins, and somewhere on its way
        for fatal in (numbers.randint(1, 8), numbers.randint(9, 40)):
            assert start(arguments, run, stage, fatal) == -signal.SIGKILL
    assert start(arguments, run) == 0
    for one, other in zip(ends(run), ends(whole), strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            same = torch.equal(value, other[name]) if torch.is_tensor(value) else None
            assert value == other[name] if same is None else same, name
