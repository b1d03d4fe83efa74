"""Seeds of parts of a study's runs: ``seeds: {weights: 3, order: 3}`` varies these and no other.

The parts are those of the section ``seed`` of ``bertlab fit``. Each key is a factor, and its seeds
are crossed with those of the other keys. What no key names has the same seed in all runs.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product

from bertlab import nearest
from bertlab.api import ConfigError
from bertlab.extend import SEED_PARTS, SEED_SECTION, check_seed
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.values import MOST, check_count

FIXED = 1  # the seed of what does not vary
_TOGETHER = "+"  # order+masks: 3 gives both the seeds 1, 2, 3 at a time

SeedTuple = tuple[int, ...]


@dataclass(frozen=True)
class SeedFactor:
    """Parts of a run whose seed varies, all of them at a time.

    Attributes:
        name: as the study file has it: ``weights``, or ``order+masks`` of two parts.
        parts: of the section ``seed``.
        seeds: that they have.
    """

    name: str
    parts: tuple[str, ...]
    seeds: SeedTuple


@dataclass(frozen=True)
class RunSeeds:
    """The seeds of one run.

    Attributes:
        seed: ``seed_everything``.
        name: in the run's id.
        parts: seed of each part that has another.
    """

    seed: int
    name: str
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, object]:
        """The config keys that a run's hash is made of."""
        return {"seed_everything": self.seed, **({SEED_SECTION: self.parts} if self.parts else {})}

    @property
    def arguments(self) -> list[str]:
        """Those of ``bertlab fit``."""
        parts = [f"--{SEED_SECTION}.{part}={seed}" for part, seed in self.parts.items()]
        return [*parts, f"--seed_everything={self.seed}"]


def read_factors(given: object, where: str) -> tuple[SeedFactor, ...]:
    """Return the factors of a study's ``seeds``; none if these name no part of a run.

    Args:
        given: content of the key.
        where: file and key, for messages.

    Raises:
        StudyError: if a key beside a part is none, a part is named twice, or seeds are no seeds.
    """
    keys = list(given) if isinstance(given, dict) else []
    named = {key: str(key).split(_TOGETHER) for key in keys}
    if not isinstance(given, dict) or not any(
        set(each) & set(SEED_PARTS) for each in named.values()
    ):
        return ()
    seen: list[str] = []
    for key, parts in named.items():
        for part in parts:
            if part not in SEED_PARTS:
                raise StudyError(
                    f"{where}: found {key!r} beside parts of a run{nearest(part, SEED_PARTS)} "
                    f"(the parts are: {', '.join(SEED_PARTS)})"
                )
        seen += parts
    twice = next((part for part in seen if seen.count(part) > 1), None)
    if twice is not None:
        raise StudyError(f"{where}: {twice!r} is given twice; expected each part once")
    factors = tuple(
        SeedFactor(str(key), tuple(parts), _seeds(given[key], f"{where}.{key}"))
        for key, parts in named.items()
    )
    check_count(math.prod(len(each.seeds) for each in factors), "combinations of seeds", where)
    return factors


def _seeds(given: object, where: str) -> SeedTuple:
    try:
        return tuple(check_seed(seed, where) for seed in seed_list(given))
    except ConfigError as error:
        message = str(error).removeprefix("seeds: ").removeprefix(f"{where}: ")
        raise StudyError(f"{where}: {message}") from None


@cache
def seed_table(factors: tuple[SeedFactor, ...]) -> Mapping[int, dict[str, int]]:
    """Return the seed of each factor, by the number of their combination.

    One factor's seeds are the numbers themselves. Combinations of several are numbered from 1.
    """
    if len(factors) == 1:
        return {seed: {factors[0].name: seed} for seed in factors[0].seeds}
    # weights [1, 2] and order [1, 2, 3] -> 1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 1), …
    names = [factor.name for factor in factors]
    combinations = product(*(factor.seeds for factor in factors))
    return {
        number: dict(zip(names, each, strict=True)) for number, each in enumerate(combinations, 1)
    }


def seeds_of_combination(
    factors: tuple[SeedFactor, ...], number: int, has_parent: bool
) -> RunSeeds:
    """Return the seeds of a run, by the number of its combination.

    Args:
        factors: of the study, one or more.
        number: as in :func:`seed_table`.
        has_parent: it starts from another run, in which the parts vary; its own seed is fixed.
    """
    seeds = seed_table(factors)[number]
    name = "-".join(f"{factor}-{seed}" for factor, seed in seeds.items())
    parts = {
        part: seeds[factor.name]
        for factor in factors
        for part in factor.parts
        if seeds[factor.name] != FIXED and not has_parent
    }
    return RunSeeds(FIXED, name, parts)


def seed_list(given: object) -> list[int]:
    """Return the seeds 1 … N of a number, or those of a list.

    Raises:
        ConfigError: if it is neither, or a seed is given twice.
    """
    count = given if type(given) is int else len(given) if isinstance(given, list) else 0
    if count > MOST:
        raise ConfigError(f"seeds: found {count:,}, expected at most {MOST:,}")
    seeds = list(range(1, given + 1)) if type(given) is int else given  # True is no number
    if (
        not isinstance(seeds, list)
        or not seeds
        or any(type(seed) is not int or seed < 0 for seed in seeds)
    ):
        raise ConfigError(f"seeds: found {given!r}, expected a number of seeds or a list: [1, 2]")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds: found {given!r}, expected each seed once")
    return seeds
