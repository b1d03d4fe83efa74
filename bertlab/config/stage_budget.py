"""How the budget of a run in stages is shared out: steps, epochs, tokens or words."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from bertlab.config.overrides import Overrides
from bertlab.config.yaml_files import Config
from bertlab.errors import ConfigError

_ENDS = ("trainer.max_steps", "trainer.max_epochs", "max_tokens", "max_words")


def share_out(config: Config, names: Sequence[str], shares: Sequence[Fraction]) -> list[Overrides]:
    """Return the settings by which each stage ends.

    Steps are rounded so that their sum is the budget: of 10, shares of 1/3 are 3, 4 and 3. Tokens
    and words become steps when the data of a stage is known.
    """
    key, amount = _budget(config)
    if key == "trainer.max_steps":
        ends = [0, *(round(amount * each) for each in accumulate(shares))]
        parts: list[float] = [end - start for start, end in pairwise(ends)]
    elif key == "trainer.max_epochs":
        parts = [int(amount * share) if _is_whole(amount * share) else 0 for share in shares]
    else:
        parts = [amount * float(share) for share in shares]
    for name, share, part in zip(names, shares, parts, strict=True):
        if not part > 0:
            unit = "step" if key == "trainer.max_steps" else "whole number of epochs"
            raise ConfigError(
                f"stages.{name}.share: {float(share):g} of {key}, which is {amount:,}, is "
                f"{float(amount * share):g}, expected a {unit}; choose another share or {key}"
                + (", or give trainer.max_steps" if key == "trainer.max_epochs" else "")
            )
    return [{key: part} for part in parts]


def _budget(config: Config) -> tuple[str, Any]:
    """Return the key that ends the run, and its value."""
    trainer = config["trainer"]
    values = (
        trainer["max_steps"],
        trainer["max_epochs"],
        config["max_tokens"],
        config["max_words"],
    )
    found = {
        key: value for key, value in zip(_ENDS, values, strict=True) if value not in (None, -1)
    }
    if "max_words" in found:
        found.pop("trainer.max_epochs", None)  # no end there but a limit
    if len(found) != 1:
        told = " and ".join(found) or "none"
        raise ConfigError(
            f"stages: found {told} to end the run, expected one of {', '.join(_ENDS)}, of which "
            "each stage has a share"
        )
    ((key, amount),) = found.items()
    if not 0 < amount < math.inf:  # NaN is not either
        raise ConfigError(f"{key}: found {amount}, expected above 0")
    return key, amount


def _is_whole(amount: Fraction) -> bool:
    return amount.denominator == 1
