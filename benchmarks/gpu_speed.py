"""On one GPU: check what is made for it, then time pre-training against Hugging Face's ``Trainer``.

    python benchmarks/gpu_speed.py --store STORE                  # checks; base, 128 and 512 tokens
    python benchmarks/gpu_speed.py --store STORE --runs large:128 --peers best stock --rounds 5

Offline; STORE is output of ``bertlab prepare``. All is done in one process, bertlab and its peers
in turn, as importing and compiling take longer than the steps: base at one length takes 35 s, with
the checks a minute and a half, a peer that compiles another 80 s. What is printed stays if the time
is up. The checks: attention's kernels, in bf16, against padded attention in fp32, values and
gradients; and a run of BERT-small whose steps are replayed against one in which each kernel is
launched by itself, loss by loss, without dropout. Peers are those of ``pretrain_speed.py``.
``--device cpu`` rehearses all of it.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pretrain_speed
import speed_peer
import step_clock
import torch
from gemm_peak import gemm_peak

from bertlab.api.batch import PackedBatch, pack
from bertlab.cli.main import main as bertlab
from bertlab.encoders import attention

HAS_SHORT = torch.cuda.is_available() and find_spec("triton") is not None
if HAS_SHORT:
    from bertlab_gpu import attention_kernel

STEP_TOKENS = 2**16
TOLERANCE = 2e-2  # relative to the largest value; bf16 has 8 bits
LOSS_TOLERANCE = 1e-2  # of a step's loss, the largest of 300
NO_DROPOUT = [
    *("--model.encoder.hidden_dropout_prob", "0"),
    *("--model.encoder.attention_probs_dropout_prob", "0"),
]


def main() -> int:
    """Check and time; return 1 if a check fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--runs", nargs="+", default=["base:128", "base:512"], help="SIZE:LENGTH")
    parser.add_argument("--step_tokens", type=int, default=STEP_TOKENS)
    parser.add_argument("--peers", nargs="*", default=[], choices=["best", "stock"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--check_steps", type=int, default=300, help="0: no checks")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--device", default="cuda", choices=["cuda", "cpu"], help="cpu: a rehearsal"
    )
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpu-speed-"))
    peak = 0.0
    if given.device == "cuda":
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
        peak = gemm_peak(torch.bfloat16, "cuda", (4096, 8192))
        print(f"matrix products in bf16: {peak / 1e12:.0f} TFLOP/s", flush=True)
    if given.check_steps and not (checked_kernels(given.device) & checked_steps(given, folder)):
        return 1
    for run in given.runs:
        size, length = run.split(":")
        time_size(given, folder, size, int(length), peak)
    return 0


def checked_kernels(device: str) -> bool:
    """Print how far attention's kernels are off; return whether that is rounding."""
    kinds = [("FlashAttention", False)] if device == "cuda" else []
    if HAS_SHORT:
        kinds.append(("short sequences", True))
    shapes: list[list[int]] = [[128] * 8, [7, 512, 64, 1, 300]]
    worst = {
        name: max(kernel_difference(lengths, is_short) for lengths in shapes)
        for name, is_short in kinds
    }
    for name, found in worst.items():
        print(f"attention, {name}, against fp32: largest relative difference {found:.1e}")
    return all(found < TOLERANCE for found in worst.values())


def kernel_difference(lengths: Sequence[int], is_short: bool, heads: int = 12) -> float:
    """Return the largest difference of outputs and gradients, relative to their largest value."""
    torch.manual_seed(0)
    batch = pack([[1] * n for n in lengths])
    qkv = torch.randn(sum(lengths), 3 * heads * 64, device="cuda")
    pairs = zip(
        attend(qkv.bfloat16(), batch, heads, is_short), attend(qkv, batch, heads), strict=True
    )
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)


def attend(
    qkv: torch.Tensor, batch: PackedBatch, heads: int, is_short: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs of attention without dropout, and the gradient of their squares' sum."""
    leaf, here = qkv.detach().requires_grad_(), batch.to(qkv.device)
    if is_short:
        found = attention_kernel.short_attention(leaf, here.cu_seqlens, heads, 0.0, here.max_seqlen)
    else:
        found = attention.packed_attention(leaf, here, heads, 0.0, causal=False)
    found.square().sum().backward()
    assert leaf.grad is not None
    return found.detach().float(), leaf.grad.float()


def checked_steps(given: argparse.Namespace, folder: Path) -> bool:
    """Print how far losses of replayed steps are off; return whether that is rounding."""
    size, length, batch = ("small", 128, 64) if given.device == "cuda" else ("tiny", 64, 8)
    run = sized(given, size, length, batch, given.check_steps)
    losses = []
    for compiles in (True, False):
        log = folder / f"losses-{compiles}.json"
        os.environ[step_clock.LOSSES] = str(log)
        fit(run, folder, compiles, NO_DROPOUT)
        losses.append(json.loads(log.read_text()))
    off = [abs(one - other) / other for one, other in zip(*losses, strict=True)]
    print(
        f"losses of {len(off)} steps, replayed and not: the first {losses[0][0]:.4f} and "
        f"{losses[1][0]:.4f}, the last {losses[0][-1]:.4f} and {losses[1][-1]:.4f}; largest "
        f"relative difference {max(off):.1e}",
        flush=True,
    )
    return max(off) < LOSS_TOLERANCE


def time_size(given: argparse.Namespace, folder: Path, size: str, length: int, peak: float) -> None:
    """Time bertlab and its peers in turn, and print medians."""
    batch = given.step_tokens // length
    run = sized(given, size, length, batch, given.steps)
    rows = folder / f"{size}-{length}"
    rows.mkdir()
    vocab_size = pretrain_speed.prepare(run, rows).load_tokenizer().vocab_size
    mean = statistics.fmean(pretrain_speed.load_from_disk(str(rows / "rows"))["length"])
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(given.rounds):
        for arm in ("bertlab", *given.peers):
            clock = folder / "clock"
            clock.write_text("")
            os.environ[step_clock.VARIABLE] = str(clock)
            os.environ.pop(step_clock.LOSSES, None)
            if given.device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            if arm == "bertlab":
                fit(run, folder, given.device == "cuda")
            else:
                train_peer(run, rows, arm)
            found.setdefault(arm, []).append(seconds_and_memory(clock))
    flops = mean * batch * pretrain_speed.flops_of_a_token(size, vocab_size, mean)
    ours = statistics.median(seconds for seconds, _ in found["bertlab"])
    print(f"{size}, {batch} sequences of {mean:.1f} tokens (at most {length}):")
    for arm, runs in found.items():
        steps = [seconds for seconds, _ in runs]
        step = statistics.median(steps)
        share = f", {flops / step / peak:.1%} of the peak" if peak else ""
        times = f"{step * 1e3:.1f} ms a step ({min(steps) * 1e3:.1f} … {max(steps) * 1e3:.1f})"
        rate = f"{mean * batch / step:,.0f} tokens a second{share}"
        memory = f"{max(memory for _, memory in runs) / 1e9:.1f} GB"
        print(f"  {arm}: {times}, {rate}, {memory}; {step / ours:.2f} × bertlab's", flush=True)


def sized(
    given: argparse.Namespace, size: str, length: int, batch: int, steps: int
) -> argparse.Namespace:
    """Return the arguments as ``pretrain_speed.py`` names them, of one size."""
    named = {"size": size, "max_seq_length": length, "batch_size": batch, "steps": steps}
    return argparse.Namespace(**vars(given) | named)


def fit(run: argparse.Namespace, folder: Path, compiles: bool, options: Sequence[str] = ()) -> None:
    """Run ``bertlab fit`` in this process, its steps on the clock."""
    config = folder / "fit.yaml"
    on_gpu = run.device == "cuda"
    config.write_text(pretrain_speed.fit_config(run, run.store, on_gpu, compiles))
    directory = tempfile.mkdtemp(dir=folder)
    if bertlab(["fit", "--config", str(config), "--run_dir", f"{directory}/run", *options]):
        raise SystemExit("bertlab fit failed")


def train_peer(run: argparse.Namespace, rows: Path, arm: str) -> None:
    """Run Hugging Face's ``Trainer`` in this process, its steps on the clock."""
    best = ["--best", *(["--bf16"] if run.device == "cuda" else [])] if arm == "best" else []
    sys.argv = [*pretrain_speed.peer_command(run, rows), *best]
    speed_peer.main()


def seconds_and_memory(clock: Path) -> tuple[float, float]:
    """Return the median seconds a step and the largest memory in bytes.

    Of tens of steps, as the GPU is waited for at the end of each; the first two compile. Where
    bertlab records another size of batch, or a peer compiles one, ten steps are slow: the median of
    what is left does not see it.
    """
    lines = [line.split() for line in clock.read_text().splitlines()]
    ends = [float(time) for time, _ in lines[9::10]]
    tens = [after - before for before, after in pairwise(ends[1:])]
    return statistics.median(tens) / 10, max(float(memory) for _, memory in lines)


if __name__ == "__main__":
    sys.exit(main())
