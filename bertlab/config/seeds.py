"""Seeds of a run: one for all that is drawn, or one for each part of it.

``seed_everything`` decides all draws. A seed in the section ``seed`` takes a part of them away from
it, so that two runs can differ in their initial weights alone (Dodge et al. 2020, Fine-tuning
pretrained language models: weight initializations, data orders, and early stopping).
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from bertlab.errors import ConfigError

LARGEST_SEED = 2**32 - 1  # NumPy takes no larger one
_DRAWN = "BERTLAB_SEED"  # environment variable: the seed that was drawn, for further processes


@dataclass(frozen=True)
class GivenSeeds:
    """The config's section ``seed``: seeds of parts of a run, ``seed_everything`` if not given.

    Args:
        weights: of the initial weights of encoder, objectives and head.
        order: of what a batch holds: order, chunks, lengths and pairs of text; order of rows.
        masks: of what objectives draw for a batch: positions, replacements. Pre-training only.
        dropout: of what is drawn while the model computes: dropout.
    """

    weights: int | None = None
    order: int | None = None
    masks: int | None = None
    dropout: int | None = None


SEED_PARTS = tuple(field.name for field in fields(GivenSeeds))
SEED_SECTION = "seed"


@dataclass(frozen=True)
class Seeds:
    """The seed of each part of a run; see :class:`GivenSeeds`."""

    weights: int
    order: int
    masks: int
    dropout: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Seeds":
        """Return those of a resolved config; one from before there was ``seed`` has none apart."""
        return cls(
            **dict.fromkeys(SEED_PARTS, config["seed_everything"])
            | (config.get(SEED_SECTION) or {})
        )

    def apart(self, seed: int) -> dict[str, int]:
        """Return the parts whose seed is another than ``seed``."""
        return {part: own for part, own in asdict(self).items() if own != seed}


def check_seeds(given: Mapping[str, int | None], has_objectives: bool) -> dict[str, int]:
    """Return those of a config's section ``seed`` that are given."""
    found = {part: seed for part, seed in given.items() if seed is not None}
    for part, seed in found.items():
        check_seed(seed, f"{SEED_SECTION}.{part}")
    if not has_objectives and "masks" in found:
        raise ConfigError(
            f"{SEED_SECTION}.masks: found {found['masks']}, but a fine-tuning draws no masks; "
            f"leave it out, or expected {SEED_SECTION}.weights, {SEED_SECTION}.order or "
            f"{SEED_SECTION}.dropout"
        )
    return found


def check_seed(seed: int, key: str) -> int:
    """Return a seed.

    Raises:
        ConfigError: if it is out of range; names ``key``.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"{key}: found {seed}, expected 0 to {LARGEST_SEED}")
    return int(seed)


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
    return check_seed(given, "seed_everything")


def _fresh_seed() -> int:
    """Draw a seed; processes that Lightning starts inherit the first one's."""
    # not PL_GLOBAL_SEED, where Lightning leaves a seed for them: that is the seed of dropout
    inherited = os.environ.get(_DRAWN) if os.environ.get("LOCAL_RANK") else None
    if inherited:
        return int(inherited)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        raise ConfigError("seed_everything: give one where torchrun or SLURM starts the processes")
    drawn = secrets.randbelow(2**31)  # not random's, which the caller may have seeded
    os.environ[_DRAWN] = str(drawn)
    return drawn
