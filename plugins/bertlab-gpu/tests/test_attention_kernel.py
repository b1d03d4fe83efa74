"""bertlab's attention kernels against float64, on a GPU or in Triton's interpreter."""

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

on_gpu = torch.cuda.is_available()
interpreted = os.environ.get("TRITON_INTERPRET") == "1"
with_kernel = pytest.mark.skipif(not on_gpu and not interpreted, reason="see the first test")
DEVICE = torch.device("cuda" if on_gpu else "cpu")
HEADS, SIZE = 2, 16
LENGTHS, DROPOUTS = ([128, 64], [7, 100, 1, 33], [200, 5]), (0.1, 0.6, 0.0)
# the interpreter takes a second for one: each length and each dropout once
CASES = [*product(LENGTHS, DROPOUTS)] if on_gpu else [*zip(LENGTHS, DROPOUTS, strict=True)]


@pytest.mark.nightly
@pytest.mark.skipif(on_gpu or interpreted, reason="all others run here")
@pytest.mark.filterwarnings("ignore")  # of an installed Triton that finds no GPU
def test_in_tritons_interpreter() -> None:
    """Triton reads the variable when it is imported, which others of this process may have done."""
    pytest.importorskip("triton", minversion="3.9")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--noconftest",
        "-p",
        "no:cacheprovider",
        __file__,
    ]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("s" + (len(CASES) + 2) * "."), done.stdout


@pytest.fixture
def kernel() -> ModuleType:
    return importlib.import_module("bertlab_gpu.attention_kernel")


def mixed(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Wellons' lowbias32, as in its publication."""
    bits = bits ^ (bits >> np.uint32(16))
    bits = bits * np.uint32(0x7FEB352D)
    bits = bits ^ (bits >> np.uint32(15))
    bits = bits * np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))


def kept(seeds: Sequence[int], program: int, length: int, dropout: float) -> Tensor:
    """Which of the ``(length, length)`` weights of a sequence and head stay."""
    places = np.arange(length, dtype=np.uint32)
    with np.errstate(over="ignore"):
        low = mixed(np.array([(seeds[0] + program * 0x9E3779B9) % 2**32], np.uint32))
        high = mixed(np.array([seeds[1]], np.uint32) ^ low)
        bits = (mixed(low + places) | np.uint32(1))[:, None] * mixed(high + places)
        bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    return torch.from_numpy(bits >= np.uint32(round(dropout * 2**32)))


def attend(qkv: Tensor, lengths: Sequence[int], dropout: float, seeds: Sequence[int]) -> Tensor:
    outputs = []
    for number, part in enumerate(qkv.split(list(lengths))):
        query, key, value = part.view(len(part), 3, HEADS, SIZE).permute(1, 2, 0, 3)
        weights = (query @ key.transpose(1, 2) * SIZE**-0.5).softmax(-1)
        if dropout:
            masks = [
                kept(seeds, number * HEADS + head, len(part), dropout) for head in range(HEADS)
            ]
            weights = weights * torch.stack(masks).to(qkv.device) / (1 - dropout)
        outputs.append((weights @ value).transpose(0, 1).reshape(len(part), -1))
    return torch.cat(outputs)


@with_kernel
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize(("lengths", "dropout"), CASES)
def test_values_and_gradients(kernel: ModuleType, lengths: list[int], dropout: float) -> None:
    torch.manual_seed(0)
    dtype, tolerance = (torch.bfloat16, 1e-2) if on_gpu else (torch.float32, 2e-6)
    qkv = torch.randn(sum(lengths), 3 * HEADS * SIZE).to(DEVICE, dtype)
    weights = torch.randn(sum(lengths), HEADS * SIZE).to(DEVICE, dtype)
    borders = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=DEVICE)
    torch.manual_seed(1)
    seeds = torch.randint(2**31 - 1, (2,), device=DEVICE)
    torch.manual_seed(1)  # the kernel draws the same
    leaf = qkv.clone().requires_grad_()
    found = kernel.short_attention(leaf, borders, HEADS, dropout, max(lengths))
    (found * weights).sum().backward()
    exact = qkv.double().requires_grad_()
    expected = attend(exact, lengths, dropout, seeds.tolist())
    (expected * weights.double()).sum().backward()
    assert leaf.grad is not None
    assert exact.grad is not None
    for one, other in ((found, expected), (leaf.grad, exact.grad)):
        assert (one.double() - other).norm() / other.norm() < tolerance


def test_weights_are_dropped_evenly_and_on_their_own() -> None:
    share, length = 0.1, 512
    masks = [~kept((seed, 77), head, length, share) for seed in (3, 4) for head in range(8)]
    scores = [(mask.double() - share) / (share * (1 - share)) ** 0.5 for mask in masks]
    for score in scores:
        assert abs(score.mean()) * length < 4
        for along in (0, 1):  # of no query, and of no key, are more dropped than by chance
            assert 0.7 < (score.mean(along) * length**0.5).var() < 1.4
        for shift in ((0, 1), (1, 0), (1, 1)):
            assert abs((score * score.roll(shift, (0, 1))).mean()) * length < 4.5
        corners = score * score.roll(1, 0) * score.roll(1, 1) * score.roll((1, 1), (0, 1))
        assert abs(corners.mean()) * length < 4.5
    pairs = torch.stack(scores).flatten(1) @ torch.stack(scores).flatten(1).T / length
    assert (pairs - pairs.diag().diag()).abs().max() < 4.5


@with_kernel
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_it_is_an_operator_that_compilers_understand(kernel: ModuleType) -> None:
    qkv = torch.randn(12, 3 * HEADS * SIZE, device=DEVICE, requires_grad=True)
    borders = torch.tensor([0, 5, 12], dtype=torch.int32, device=DEVICE)
    seeds = torch.tensor([5, 6], device=DEVICE)
    operator = torch.ops.bertlab.short_attention.default
    del kernel  # defines it
    torch.library.opcheck(operator, (qkv, borders, seeds, HEADS, 0.1, 7))
