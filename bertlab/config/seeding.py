"""Which seed a run has."""

import os
import secrets

from bertlab.errors import ConfigError


def choose_seed(given: int | bool, resumed: int | None = None) -> int:
    """Return the seed of a run.

    Args:
        given: ``seed_everything``; True for any.
        resumed: that of the run that goes on, if there is one.

    Raises:
        ConfigError: if it is out of range, or several processes would draw different ones.
    """
    if given is True:
        given = _fresh_seed() if resumed is None else resumed
    if not 0 <= given < 2**32:
        raise ConfigError(f"seed_everything: found {given}, expected 0 to 4294967295")
    return int(given)


def seed_list(given: object) -> list[int]:
    """Return the seeds 1 … N of a number, or those of a list.

    Raises:
        ConfigError: if it is neither, or a seed is given twice.
    """
    seeds = list(range(1, given + 1)) if type(given) is int else given
    if (
        not isinstance(seeds, list)
        or not seeds
        or any(type(seed) is not int or seed < 0 for seed in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        raise ConfigError(f"seeds: found {given!r}, expected a number of seeds or a list: [1, 2]")
    return seeds


def _fresh_seed() -> int:
    """Draw a seed; processes that Lightning starts inherit the first one's."""
    inherited = os.environ.get("PL_GLOBAL_SEED") if os.environ.get("LOCAL_RANK") else None
    if inherited:
        return int(inherited)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        raise ConfigError("seed_everything: give one where torchrun or SLURM starts the processes")
    return secrets.randbelow(2**31)
