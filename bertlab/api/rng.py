"""Counter-based random numbers: every draw is a pure function of (seed, stream, counters).

Nothing is stored and nothing advances, so a draw does not depend on what was drawn before, on the
number of workers, or on what else is in the batch. With k counters, ``bits(c_1, ..., c_k)`` chains
SplitMix64 (Steele et al. 2014, with Stafford's 13th mixer): the state starts at a 64-bit key, the
BLAKE2b hash of seed and stream, and becomes at each step the ``(c_j + 1)``-th output of SplitMix64
seeded with the state before. Only ``uint64`` arithmetic modulo 2**64 is used, so the numbers are
the same on every platform and with every NumPy. Not for cryptography.
"""

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = int | npt.NDArray[np.integer[Any]]
Bits = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.integer[Any]]


def _uint64(value: int) -> Bits:
    """Return ``()`` uint64, which functions of NumPy need not convert at each call."""
    return np.array(value, dtype=np.uint64)


_GAMMA = _uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, an odd number
_MIXER = ((_uint64(30), _uint64(0xBF58476D1CE4E5B9)), (_uint64(27), _uint64(0x94D049BB133111EB)))
_LAST_SHIFT = _uint64(31)
_FEISTEL_ROUNDS = 6
_SMALL_DOMAIN, _SMALL_DOMAIN_ROUNDS = 256, 12  # 6 rounds measurably favour some orders of 4 or 12


def _absorb(state: Bits, counter: Integers) -> Bits:
    """Return output ``counter + 1`` of SplitMix64 seeded with ``state``, broadcast."""
    # np.add and np.multiply, as + and * of two scalars warn when they wrap around
    steps = np.multiply(np.asarray(counter).astype(np.uint64), _GAMMA)
    # SplitMix64 adds _GAMMA before each output, so the n-th mixes state + n * _GAMMA
    mixed: Bits = np.add(steps, np.add(state, _GAMMA))
    for shift, multiplier in _MIXER:
        mixed = np.multiply(mixed ^ (mixed >> shift), multiplier)
    return np.asarray(mixed ^ (mixed >> _LAST_SHIFT))


@dataclass(frozen=True)
class CounterRNG:
    """Random numbers keyed by a seed, a stream name and integer counters.

    Counters are integers or integer arrays that broadcast against each other; put those with the
    largest shape last, since the leading ones are mixed at their own shape. ``bits(1)`` and
    ``bits(1, 0)`` are different draws.

    Attributes:
        seed: any integer.
        stream: name of the purpose; streams of different names are independent.
    """

    seed: int
    stream: str
    _key: Bits = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(f"{self.seed}\0{self.stream}".encode(), digest_size=8).digest()
        object.__setattr__(self, "_key", _uint64(int.from_bytes(digest, "little")))

    def child(self, name: str) -> "CounterRNG":
        """Return the independent stream ``<stream>/<name>`` of the same seed."""
        return CounterRNG(self.seed, f"{self.stream}/{name}")

    def bits(self, *counters: Integers, rows: Rows | None = None) -> Bits:
        """Return 64 random bits for each tuple of counters, ``uint64`` of the broadcast shape.

        Args:
            counters: as described above.
            rows: ``(n,)`` spares mixing what many tuples share: the last counter is ``(n,)`` then,
                the others ``(B,)``, and the i-th tuple consists of their values at ``rows[i]``.
        """
        state = self._key
        for number, counter in enumerate(counters, 1):
            if rows is not None and number == len(counters):
                # (B,) -> (n,): all but the last counter were mixed once for each of their B values
                state = state[rows]
            state = _absorb(state, counter)
        return state

    def uniform(self, *counters: Integers, rows: Rows | None = None) -> npt.NDArray[np.float64]:
        """Return ``float64`` in [0, 1): the top 53 bits, so all multiples of 2**-53."""
        return np.asarray((self.bits(*counters, rows=rows) >> np.uint64(11)) * 2.0**-53)

    def integers(
        self, high: Integers, *counters: Integers, rows: Rows | None = None
    ) -> npt.NDArray[np.int64]:
        """Return ``int64`` in [0, high): the 64 bits modulo ``high``, broadcast.

        No value's probability is off by more than 2**-64, and the total variation distance from
        uniform is at most ``high * 2**-66``: below 2**-40 up to ``high`` = 2**26.

        Args:
            high: at least 1, below 2**63; an integer or an array.
            counters: as in :meth:`bits`.
            rows: as in :meth:`bits`.
        """
        bound = np.asarray(high).astype(np.uint64)
        return np.asarray(np.remainder(self.bits(*counters, rows=rows), bound)).astype(np.int64)

    def permute(self, index: Integers, size: int, *key: Integers) -> npt.NDArray[np.int64]:
        """Return where a keyed random permutation of [0, size) sends ``index``.

        The permutation is evaluated at the given places only, never materialised: a Feistel
        network on pairs of residues modulo a and b with ``a * b >= size`` (Black and Rogaway 2002),
        whose values outside [0, size), a share under ``size ** -0.5``, walk on along their cycle.

        Args:
            index: integers in [0, size).
            size: length of the permutation, 1 to 2**40.
            key: counters that choose the permutation (the epoch, say); broadcast with ``index``.
        """
        # size 10: residues modulo 4 and 3 make 12 values, of which 10 and 11 walk on
        left_size = math.isqrt(size - 1) + 1
        right_size = -(-size // left_size)
        state = self._key ^ _GAMMA  # apart from the draws of bits()
        for counter in key:
            state = _absorb(state, counter)
        start, states = np.broadcast_arrays(np.asarray(index).astype(np.uint64), state)
        value, states = start.ravel(), states.ravel()
        value = _feistel(value, states, left_size, right_size)
        outside = np.flatnonzero(value >= size)
        # ends, as every cycle comes back to where it began, which is inside
        while outside.size:
            value[outside] = _feistel(value[outside], states[outside], left_size, right_size)
            outside = outside[value[outside] >= size]
        return value.astype(np.int64).reshape(start.shape)


def _feistel(value: Bits, state: Bits, left_size: int, right_size: int) -> Bits:
    """Return a keyed bijection of [0, left_size * right_size) at ``value``, both ``(n,)``."""
    moduli = np.uint64(left_size), np.uint64(right_size)
    left, right = np.divmod(value, moduli[1])
    halves = [left, right]
    small = left_size * right_size < _SMALL_DOMAIN
    for number in range(_SMALL_DOMAIN_ROUNDS if small else _FEISTEL_ROUNDS):
        side = number % 2
        key = _absorb(_absorb(state, number), halves[1 - side])
        # adding modulo the half's own size can be undone, whatever the key: so it is a bijection
        halves[side] = (halves[side] + key % moduli[side]) % moduli[side]
    return np.asarray(halves[0] * moduli[1] + halves[1])
