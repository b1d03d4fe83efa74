"""The highest rate of matrix products that this machine reaches now: GFLOP/s, on one line.

    python benchmarks/gemm_peak.py [--dtype bfloat16] [--device cuda]

Square products of several sizes, best of five each; what a model can reach at most.
"""

import argparse
import time

import torch


def gemm_peak(dtype: torch.dtype, device: str, sizes: tuple[int, ...]) -> float:
    """Return floating-point operations a second, the best over sizes and repetitions."""
    best = 0.0
    for size in sizes:
        one, two = (torch.rand(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(one)
        for _ in range(6):
            if device == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            torch.mm(one, two, out=out)
            if device == "cuda":
                torch.cuda.synchronize()
            best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


def main() -> None:
    """Print the peak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    given = parser.parse_args()
    sizes = (1024, 2048) if given.device == "cpu" else (4096, 8192, 16384)
    print(f"{gemm_peak(getattr(torch, given.dtype), given.device, sizes) / 1e9:.1f}")


if __name__ == "__main__":
    main()
