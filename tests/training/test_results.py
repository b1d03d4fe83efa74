"""What a run has written of its figures, also where that is not as a run writes it."""

import shutil
from pathlib import Path

import pytest

from bertlab.training import results
from bertlab.training.results import read_curves, read_results


def write_log(run: Path, text: str, version: int = 0) -> None:
    folder = run / f"csv/version_{version}"
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text(text)


def test_a_log_without_steps_is_passed_over(tmp_path: Path) -> None:
    write_log(tmp_path, "epoch,train/loss\n0,1.5\n")
    write_log(tmp_path, "epoch,step,train/loss\n0,3,1.25\n", 1)
    write_log(tmp_path, "", 2)
    assert read_curves(tmp_path) == {"train/loss": ([3], [1.25])}


def test_the_start_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, "step,train/loss\n1,1.5\n2,1.25\n3,1.0\n")
    monkeypatch.setattr(results, "LARGEST_FILE", len("step,train/loss\n1,1.5\n2,1.25\n3,"))
    assert read_curves(tmp_path) == {"train/loss": ([1, 2], [1.5, 1.25])}


@pytest.mark.parametrize("best", [False, True])
def test_results_of_more_than_a_mebibyte_are_refused(tmp_path: Path, best: bool) -> None:
    name = "best.json" if best else "results.json"
    (tmp_path / name).write_text('{"results": {}, "x": "%s"}' % ("y" * 2**20))
    with pytest.raises(OSError, match="has over 1,048,576 bytes"):
        read_results(tmp_path, best)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step,train/loss\n1,1.5\n2,1e", [1.5]),  # a kill within 1e-05
        ("step,train/loss\n1,1.5\n2,-", [1.5]),
        ("step,train/loss\n1,1.5\n2,1.25,7.0,x\n", [1.5, 1.25]),
    ],
)
def test_a_line_that_is_not_whole_takes_no_others_along(
    tmp_path: Path, text: str, expected: list[float]
) -> None:
    write_log(tmp_path, text)
    assert read_curves(tmp_path) == {"train/loss": ([*range(1, len(expected) + 1)], expected)}


def test_a_copy_of_a_log_under_another_name_is_passed_over(tmp_path: Path) -> None:
    write_log(tmp_path, "step,train/loss\n1,1.5\n", 9)
    write_log(tmp_path, "step,train/loss\n1,1.25\n", 10)
    for name in ("version_0_old", "version_", "version_10 (copy)"):
        shutil.copytree(tmp_path / "csv/version_9", tmp_path / "csv" / name)
    assert read_curves(tmp_path) == {"train/loss": ([1], [1.25])}
