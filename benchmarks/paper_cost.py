"""Work out the time of the paper's pre-trainings on GPUs: nothing is run.

    python benchmarks/paper_cost.py [--utilisation 0.4 0.5] [--gemm_tflops 860]

Sizes, batches, steps and lengths are those of both stages of
``configs/pretrain/bert-{base,large}-two-stages.yaml``; operations are those that the algorithm
needs (``bertlab_studies.plan``). The rest is in the options: what matrix products reach, the share
of it that a step's kernels reach, how long Python takes to launch them (these three as measured on
one H100, benchmarks/figures/gpu.md, and a better share), and how fast gradients travel, which is
assumed. Gradients are summed in fp32 by rings inside a node, and between nodes by one ring for each
GPU of a node (two levels, as NCCL does). The days are given with all of that hidden behind the
backward pass, and with none.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.errors import print_table
from bertlab_studies.plan.budget import cost_of, meta_encoder
from bertlab_studies.plan.stages import stage_configs

CONFIGS = Path(__file__).parents[1] / "configs" / "pretrain"
NODE = 8  # GPUs
DAY = 24 * 3600.0


@dataclass(frozen=True)
class Phase:
    """One config's part of a pre-training.

    Attributes:
        steps: of the optimiser.
        sequences: of a step.
        length: tokens of a sequence, all of them full.
        layers: of the encoder.
        flops: of a step.
        gradients: bytes that the devices sum in a step.
    """

    steps: int
    sequences: int
    length: int
    layers: int
    flops: float
    gradients: int

    @property
    def tokens(self) -> int:
        """All tokens of the phase."""
        return self.steps * self.sequences * self.length


@dataclass(frozen=True)
class Machine:
    """Bytes and floating-point operations a second, seconds.

    Attributes:
        flops: that a step's kernels reach on a GPU.
        launch: to launch a layer's kernels, forward and backward.
        within_node: that each GPU sends.
        between_nodes: that each GPU sends.
    """

    flops: float
    launch: float
    within_node: float
    between_nodes: float

    def computing(self, phase: Phase, gpus: int) -> float:
        """Seconds of a step's computing."""
        return max(self.launch * phase.layers, phase.flops / gpus / self.flops)

    def summing(self, phase: Phase, gpus: int) -> float:
        """Seconds that the gradients of a step are on their way."""
        inside, nodes = min(gpus, NODE), -(-gpus // NODE)
        ring = 2 * (inside - 1) / inside * phase.gradients / self.within_node
        return ring + 2 * (nodes - 1) / nodes * phase.gradients / inside / self.between_nodes


def main() -> None:
    """Print what the phases need, and a line for each size, number of GPUs and utilisation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["base", "large"])
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--gemm_tflops", type=float, default=860, help="bf16, of one GPU")
    parser.add_argument("--utilisation", nargs="+", type=float, default=[0.4, 0.5])
    parser.add_argument("--launch", type=float, default=3.5, help="ms of a layer at least")
    parser.add_argument("--within_node", type=float, default=350, help="GB/s of a GPU")
    parser.add_argument("--between_nodes", type=float, default=40, help="GB/s of a GPU")
    given = parser.parse_args()
    phases = {size: phases_of(size) for size in given.sizes}
    print_work(phases)
    rows: list[Sequence[str]] = []
    for size, gpus, share in (
        (size, gpus, share) for size in phases for gpus in given.gpus for share in given.utilisation
    ):
        machine = Machine(
            share * given.gemm_tflops * 1e12,
            given.launch / 1e3,
            given.within_node * 1e9,
            given.between_nodes * 1e9,
        )
        rows.append((size, str(gpus), f"{share:.0%}", *times(machine, phases[size], gpus)))
    columns = ("size", "GPUs", "utilisation", "computing, ms a step", "summing, ms a step", "days")
    print_table("time, the first and the second phase of a step", rows, columns)


def phases_of(size: str) -> list[Phase]:
    """Return the two phases of a size."""
    path = CONFIGS / f"bert-{size}-two-stages.yaml"
    config = resolve_request(read_request(["--config", str(path)]))
    return [read_phase(stage) for stage in stage_configs(config)]


def read_phase(config: dict[str, Any]) -> Phase:
    """Return what the config of a stage asks for."""
    data, steps = config["data"], config["trainer"]["max_steps"]
    length, sequences = data["max_seq_length"], data["batch_size"]
    flops = cost_of(config, sequences * length, length).flops
    encoder = meta_encoder(config, data["vocab_size"])
    # the masked LM's output layer is the word embedding; its transform and biases are 1 % more
    gradients = 4 * sum(parameter.numel() for parameter in encoder.parameters())
    return Phase(steps, sequences, length, encoder.num_hidden_layers, flops, gradients)


def print_work(sizes: dict[str, list[Phase]]) -> None:
    """Print what there is to do, a line for each phase."""
    rows = [
        (
            size,
            f"{phase.steps:,} × {phase.sequences} × {phase.length}",
            f"{phase.tokens / 1e9:.1f}",
            f"{phase.flops / 1e12:,.1f}",
            f"{phase.steps * phase.flops / 1e18:.1f}",
            f"{phase.gradients / 1e6:,.0f}",
        )
        for size, phases in sizes.items()
        for phase in phases
    ]
    columns = ("size", "steps × sequences × tokens", "10⁹ tokens", "TFLOP a step", "10¹⁸ FLOP")
    print_table("work", rows, (*columns, "MB of gradients"))


def times(machine: Machine, phases: Sequence[Phase], gpus: int) -> tuple[str, str, str]:
    """Return milliseconds of computing and summing in each phase, and days of all."""
    computing = [machine.computing(phase, gpus) for phase in phases]
    summing = [machine.summing(phase, gpus) for phase in phases]
    pairs = list(zip(phases, computing, summing, strict=True))
    hidden = sum(phase.steps * max(one, other) for phase, one, other in pairs) / DAY
    open_ = sum(phase.steps * (one + other) for phase, one, other in pairs) / DAY
    milliseconds = [
        " / ".join(f"{1e3 * each:.1f}" for each in all_) for all_ in (computing, summing)
    ]
    days = f"{hidden:.2f}" if gpus == 1 else f"{hidden:.2f} … {open_:.2f}"
    return milliseconds[0], milliseconds[1], days


if __name__ == "__main__":
    main()
