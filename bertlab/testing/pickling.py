"""Through pickle and back, as what is sent to a data worker goes."""

import pickle
from typing import TypeVar

from bertlab.testing.failures import ConformanceFailure

T = TypeVar("T")
PLAIN_FUNCTIONS = "use functions of a module instead of lambdas and local functions"


def pickled(value: T, what: str, advice: str = PLAIN_FUNCTIONS) -> T:
    """Return a copy that was pickled.

    Raises:
        ConformanceFailure: pickle refuses it; ``what`` says what it is, ``advice`` what to do.
    """
    try:
        copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301  our own bytes
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConformanceFailure(f"pickle refuses the {what}: {error}", advice) from error
    return copy
