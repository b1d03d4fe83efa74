"""On one GPU: check attention's kernels against each other, then time pre-training against peers.

    python benchmarks/gpu_speed.py [--sizes base] [--lengths 128 512] [--rounds 1]

Offline, on the English that ships with Python. A round of a size and a length takes three to four
minutes on an H100, most of which is starting and compiling: under ten minutes with the defaults,
four times as long with ``--sizes base large --rounds 2``. The checks
compare the variable-length kernel in bf16 with padded attention in fp32, values and gradients. The
times are those of ``pretrain_speed.py --device cuda``.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

import torch
from alternating_runs import HERE
from speed_sizes import SIZES

from bertlab.api.batch import PackedBatch, pack
from bertlab.encoders.attention import packed_attention

STEP_TOKENS = 2**15
TOLERANCE = 2e-2  # relative to the largest value; bf16 has 8 bits


def main() -> int:
    """Check and time; return 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["base"], choices=list(SIZES))
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no GPU here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    worst = max(kernel_difference(lengths) for lengths in ([128] * 8, [7, 512, 64, 1, 300]))
    print(f"attention, bf16 packed against fp32 padded: largest relative difference {worst:.1e}")
    if worst > TOLERANCE:
        return 1
    for size in given.sizes:
        for length in given.lengths:
            command = [sys.executable, str(HERE / "pretrain_speed.py"), "--device", "cuda"]
            command += ["--size", size, "--max_seq_length", str(length)]
            command += ["--batch_size", str(STEP_TOKENS // length), "--steps", str(given.steps)]
            command += ["--rounds", str(given.rounds), "--workers", str(given.workers)]
            command += ["--arms", "stock", "best", "bertlab"]
            subprocess.run(command, check=True)
    return 0


def kernel_difference(lengths: Sequence[int], heads: int = 12, head_size: int = 64) -> float:
    """Return the largest difference of outputs and gradients, relative to their largest value."""
    torch.manual_seed(0)
    batch = pack([[1] * n for n in lengths], [[0] * n for n in lengths])
    qkv = torch.randn(sum(lengths), 3 * heads * head_size, device="cuda")
    packed, padded = (_attend(qkv, batch, dtype, heads) for dtype in (torch.bfloat16, torch.float))
    pairs = zip(packed, padded, strict=True)
    return max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)


def _attend(
    qkv: torch.Tensor, batch: PackedBatch, dtype: torch.dtype, heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = qkv.to(dtype).detach().requires_grad_()
    attended = packed_attention(leaf, batch.to(leaf.device), heads, 0.0, causal=False)
    attended.square().sum().backward()
    assert leaf.grad is not None
    return attended.detach().float(), leaf.grad.float()


if __name__ == "__main__":
    sys.exit(main())
