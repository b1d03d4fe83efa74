"""Studies on Ray: a real cluster of two nodes on this machine, one of which goes away."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertlab.errors import ConfigError
from bertlab_cluster.ray import check_resources, run_on_ray
from bertlab_studies.execute.run_state import Outcome, State, is_locked, last_step, read_attempts
from bertlab_studies.execute.schedule import Change
from fake_fit import FAKE, fake_run

pytestmark = pytest.mark.usefixtures("no_other_ray")

SMALL = 80 * 2**20  # bytes of a node's object store: the least that Ray takes


def test_without_ray_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'bertlab-lightning\[ray\]'"):
        run_on_ray([fake_run("a")], tmp_path, on_change=print)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster at 127.0.0.1:1: .*refused; start one with `ray start"),
        ("ray://127.0.0.1:1", "no Ray cluster at ray://127.0.0.1:1"),
        ("head", "found 'head', expected HOST:PORT"),
        ("127.0.0.1:700000", "no Ray cluster at"),
        ("auto", "no Ray cluster at auto: Could not find any running Ray instance"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_one_message_at_once(
    address: str, message: str, tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    started = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        run_on_ray([fake_run("a")], tmp_path, address=address, on_change=print)
    assert time.monotonic() - started < 60
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_port_that_is_not_rays_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr("bertlab_cluster.ray._CHECK", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError, match="what answers there is not Ray"):
            run_on_ray([fake_run("a")], tmp_path, address=address, on_change=print)


def test_a_run_that_fits_no_node_is_refused() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 2.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    check_resources(nodes, 2, 0)
    with pytest.raises(ConfigError, match=r"4 CPUs and 0 GPUs of a run; .*of 2 CPUs and 0 GPUs"):
        check_resources(nodes, 4, 0)
    with pytest.raises(ConfigError, match="1 CPUs and 1 GPUs"):
        check_resources(nodes, 1, 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with a CPU each; the first one is the head."""
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    settings = {"num_cpus": 1, "object_store_memory": SMALL, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=settings)
    yield cluster
    cluster.shutdown()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # ray 2.60 leaves files and processes open
def test_a_run_goes_on_when_its_node_goes_away(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1, object_store_memory=SMALL)
    plan = [
        fake_run("a", steps=150, seconds=0.1),
        fake_run("a-x", "a"),
        fake_run("b", steps=150, seconds=0.1),
        fake_run("c", fail_at=0, failures=1),
        fake_run("d", fail_at=0, failures=9),
        fake_run("d-x", "d"),
    ]
    seen: list[Change] = []
    removed: list[str] = []

    def note(change: Change) -> None:
        seen.append(change)

    def tick(*arguments: Any, **settings: Any) -> Any:
        if not removed and all((last_step(run.directory(tmp_path)) or 0) > 3 for run in both):
            removed.append("removed")
            cluster.remove_node(node, allow_graceful=False)
        return wait(*arguments, **settings)

    import ray

    both, wait = [plan[0], plan[2]], ray.wait
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "wait", tick)
        summary = run_on_ray(
            plan, tmp_path, address=cluster.address, retries=1, on_change=note, program=FAKE
        )
    assert removed
    assert sorted(summary.done) == ["a", "a-x", "b", "c"]
    assert summary.failed == {"d": "exit code 7: out of paper"}
    assert summary.blocked == {"d-x": "d"}
    completed = (tmp_path / "completed.txt").read_text().split()
    assert sorted(completed) == ["a", "a-x", "b", "c"]
    attempts = {run.id: [each.outcome for each in read_attempts(run, tmp_path)] for run in plan}
    assert attempts["c"] == [Outcome.FAILED, Outcome.DONE]
    assert sorted(len(attempts[each]) for each in ("a", "b")) == [1, 2]
    assert [each.state for each in seen if each.run.id == "d-x"] == [State.BLOCKED]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ctrl_c_stops_the_runs_of_a_ray_that_it_started(tmp_path: Path) -> None:
    import ray

    run, wait = fake_run("a", steps=1500, seconds=0.1), ray.wait

    def tick(*arguments: Any, **settings: Any) -> Any:
        if settings.get("timeout") == 0.5 and (last_step(run.directory(tmp_path)) or 0) > 3:
            signal.raise_signal(signal.SIGINT)
        return wait(*arguments, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "wait", tick)
        summary = run_on_ray([run], tmp_path, on_change=lambda change: None, program=FAKE)
    assert (summary.stopped_by, summary.left) == (signal.SIGINT, ["a"])
    assert [each.outcome for each in read_attempts(run, tmp_path)] == [Outcome.STOPPED]
    assert not is_locked(run, tmp_path)
