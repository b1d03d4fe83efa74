"""Training that loses a process: what is said, and that the run goes on from its checkpoint."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed import DistNetworkError
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import signal_handling

from bertlab.api.batch import PackedBatch, pack
from bertlab.data.loader import StepLoader, outlive_sigterm
from bertlab.errors import LostProcessError, OutputError
from bertlab.training.callbacks import explain_lost_process, lost_process
from bertlab.training.record import WholeCheckpointIO
from tests.conftest import Command

GLOO = (
    "[/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:22: Connection reset by peer. "
    "This is typically caused by a remote worker hanging or bugs in the application."
)


@pytest.mark.parametrize(
    ("error", "world_size", "said"),
    [
        (
            RuntimeError("DataLoader worker (pid 8) is killed by signal: Killed. "),
            1,
            "a data worker",
        ),
        (RuntimeError("DataLoader worker (pid(s) 8) exited unexpectedly"), 1, "a data worker"),
        (RuntimeError(GLOO), 2, "another process of the 2 is gone"),
        (RuntimeError(GLOO), 1, None),
        (RuntimeError("[/gloo/…] Timed out waiting 600000ms for recv"), 2, "another process"),
        (DistNetworkError("The client socket has timed out"), 2, "another process"),
        (RuntimeError("shape mismatch"), 2, None),
    ],
)
def test_errors_that_tell_of_a_lost_process(
    error: RuntimeError, world_size: int, said: str | None
) -> None:
    found = lost_process(error, world_size)
    assert (found is None) == (said is None)
    assert said is None or (found is not None and said in found and "\n" not in found)


def test_a_run_whose_directory_is_gone_says_so(tmp_path: Path) -> None:
    gone = FileNotFoundError(2, "No such file or directory", "metrics.csv")
    said = pytest.raises(OutputError, match=r"run: is gone \(its disk\?\); go on")
    with said, explain_lost_process(1, tmp_path / "run", lambda: "; go on"):
        raise gone
    with pytest.raises(FileNotFoundError), explain_lost_process(1, tmp_path, lambda: ""):
        raise gone


def test_a_worker_that_goes_while_a_checkpoint_is_written_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:  # by PyTorch's handler of SIGCHLD
        raise RuntimeError("DataLoader worker (pid 8) is killed by signal: Killed. ")

    monkeypatch.setattr("torch.save", interrupted)
    said = pytest.raises(LostProcessError, match=r"a data worker is gone \(.*Killed\); go on")
    with said, explain_lost_process(1, tmp_path, lambda: "; go on"):
        WholeCheckpointIO().save_checkpoint({}, tmp_path / "last.ckpt")
    assert not list(tmp_path.iterdir())


class Raising(Dataset[list[PackedBatch]]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __getitem__(self, step: int) -> list[PackedBatch]:
        raise self.error

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset by peer"), EOFError()])
def test_a_worker_that_goes_while_it_hands_over_is_lost(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(self: object) -> None:
        raise error

    for workers, raised in ((1, LostProcessError), (0, type(error))):
        loader = DataLoader(Steps(), batch_size=None, num_workers=workers)
        monkeypatch.setattr("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", cut_off)
        with pytest.raises(raised, match="a data worker is gone" if workers else None):
            list(StepLoader(loader, 1))


def test_workers_end_with_what_one_of_them_raises() -> None:
    """They would wait for a collector, and it for them: ten seconds."""
    others = set(multiprocessing.active_children())
    loader = DataLoader(Raising(ValueError()), batch_size=None, num_workers=2)
    with pytest.raises(ValueError):  # noqa: PT011 - of the worker
        list(StepLoader(loader, 1))
    assert not set(multiprocessing.active_children()) - others


def test_what_a_worker_itself_raises_is_not_its_loss() -> None:
    rows = Raising(ConnectionResetError("the hub went away"))
    loader = DataLoader(rows, batch_size=None, num_workers=1, worker_init_fn=outlive_sigterm)
    with pytest.raises(ConnectionResetError, match="the hub went away"):
        list(StepLoader(loader, 1))


class Steps(Dataset[list[PackedBatch]]):
    def __getitem__(self, step: int) -> list[PackedBatch]:
        return [pack([[step]])]

    def __len__(self) -> int:
        return 3


@pytest.mark.skipif(sys.platform != "linux", reason="signals of forked workers")
def test_a_sigterm_while_workers_start_does_not_end_them(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = signal_handling._set_worker_signal_handlers

    def signalled() -> None:
        prepare()  # from here on a SIGTERM ends a worker
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(signal_handling, "_set_worker_signal_handlers", signalled)
    loader = DataLoader(
        Steps(), batch_size=None, num_workers=2, worker_init_fn=outlive_sigterm,
        multiprocessing_context="fork",
    )  # fmt: skip
    assert [int(batch.input_ids) for batch in StepLoader(loader, 1)] == [0, 1, 2]
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None
        time.sleep(0.1)
    raise AssertionError(f"{path} did not appear")


@contextlib.contextmanager
def fitting(config: Path, run: Path, *settings: str) -> Iterator["subprocess.Popen[str]"]:
    """A long run in a session of its own, that has a checkpoint."""
    command = [sys.executable, "-m", "bertlab", "fit", "--config", str(config)]
    with subprocess.Popen(
        [*command, "--trainer.max_steps=3000", "--run_dir", str(run), *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    ) as process:
        wait_for(run / "checkpoints" / "last.ckpt", process)
        yield process


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in listed.split()]


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["--data.num_workers=1"], "a data worker is gone ("),
        (["--trainer.devices=2", "--trainer.strategy=ddp"], "another process of the 2 is gone ("),
    ],
)
def test_a_killed_process_ends_the_run_which_goes_on(
    settings: list[str], said: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    with fitting(tiny_config, run, *settings) as process:
        while process.poll() is None:  # a worker whose epoch is over is not missed
            for child in children(process.pid)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.2)
        _, error = process.communicate(timeout=120)
    assert process.returncode == 2, error
    assert f"bertlab: error E602: {said}" in error
    # processes are the user's to start: a checkpoint alone would not bring them
    own = f" --config {run}/config.yaml" if any("strategy" in each for each in settings) else ""
    said = f"continue with: bertlab fit --ckpt_path {run}{own}"
    assert error.strip().splitlines()[-1].endswith(said)
    alone = ("--trainer.devices=1", "--trainer.strategy=auto")
    code, _, error = bertlab("validate", "--ckpt_path", run, *alone)
    assert code == 0, error


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="signals as schedulers send them")
def test_sigterm_to_all_processes_at_once_still_saves(tiny_config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with fitting(tiny_config, run, "--data.num_workers=2") as process:
        os.killpg(process.pid, signal.SIGTERM)
        output, error = process.communicate(timeout=120)
    assert process.returncode == 143, error
    assert f"continue with: bertlab fit --ckpt_path {run}" in output
