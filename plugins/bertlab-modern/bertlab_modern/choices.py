"""Settings that are one of a few words, also where Python gives them and no config is read."""

from typing import Any, get_args

from bertlab import nearest
from bertlab.api import ConfigError


def check_choice(key: str, found: str, words: Any) -> None:  # noqa: ANN401  a Literal has no type
    """Raise ConfigError unless ``found`` is one of the words of a ``Literal``."""
    known = get_args(words)
    if found not in known:
        raise ConfigError(
            f"{key}: found {found!r}, expected one of {', '.join(known)}"
            f"{nearest(str(found).lower(), known)}"
        )
