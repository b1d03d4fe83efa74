"""What a checkpoint costs training: written while it waits, and in the background.

    python benchmarks/checkpoint_stall.py --presets mini,base

For each size: weights and both moments of Adam in memory, steps of matrix products in between.
Lost is the time of a part with one checkpoint less that of a part without; both ways and none in
turn, medians of the rounds.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from bertlab.encoders.bert import BertEncoder
from bertlab.training.record import WholeCheckpointIO
from bertlab_gpu.background import BackgroundCheckpointIO

ROUNDS = 5


def state_of(preset: str) -> dict[str, object]:
    """Return weights and moments of a BERT of a size."""
    encoder = BertEncoder(vocab_size=30_522, preset=preset)
    weights = {name: value.detach().clone() for name, value in encoder.state_dict().items()}
    moments = [{name: torch.zeros_like(value) for name, value in weights.items()} for _ in range(2)]
    return {"state_dict": weights, "optimizer_states": moments}


def work(steps: int, matrix: torch.Tensor) -> None:
    """Compute some steps."""
    for _ in range(steps):
        torch.mm(matrix, matrix)


def measure(preset: str, folder: Path) -> None:
    """Print what a checkpoint of a size costs."""
    state, matrix = state_of(preset), torch.randn(1500, 1500)
    began = time.perf_counter()
    WholeCheckpointIO(folder).save_checkpoint(state, folder / "warm.ckpt")
    takes = time.perf_counter() - began
    began = time.perf_counter()
    work(5, matrix)
    a_step = (time.perf_counter() - began) / 5
    steps = max(20, int(3 * takes / a_step))  # the write is over before the part is
    spent: dict[str, list[float]] = {"none": [], "at once": [], "background": []}
    blocked: dict[str, list[float]] = {"at once": [], "background": []}
    for number in range(ROUNDS):
        for kind, times in spent.items():
            io = (
                BackgroundCheckpointIO(folder)
                if kind == "background"
                else WholeCheckpointIO(folder)
            )
            began = time.perf_counter()
            if kind != "none":
                io.save_checkpoint(state, folder / f"{number % 2}.ckpt")
                blocked[kind].append(time.perf_counter() - began)
            work(steps, matrix)
            times.append(time.perf_counter() - began)
            io.teardown()
    size = (folder / "0.ckpt").stat().st_size / 1e6
    nothing = statistics.median(spent["none"])
    print(f"{preset}: {size:,.0f} MB")
    for kind, times in blocked.items():
        lost = statistics.median(spent[kind]) - nothing
        print(f"  {kind:<10}  waits {statistics.median(times):6.3f} s, loses {lost:6.3f} s")


def main() -> None:
    """Measure the sizes that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--presets", default="mini,base")
    for preset in parser.parse_args().presets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            measure(preset, Path(folder))


if __name__ == "__main__":
    main()
