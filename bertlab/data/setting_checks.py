"""Checks of settings that the DataModules share."""

from bertlab.errors import ConfigError


def check_at_least(name: str, value: int | None, least: int) -> None:
    """Raise ConfigError if the setting ``data.NAME`` is too small; None is fine."""
    if value is not None and value < least:
        raise ConfigError(f"data.{name}: found {value}, expected {least} or more")


def check_fraction(name: str, value: float) -> None:
    """Raise ConfigError if the setting ``data.NAME`` is not between 0 and 1."""
    if not 0 < value < 1:
        raise ConfigError(f"data.{name}: found {value}, expected between 0 and 1, both excluded")
