"""The conformance kit: one line in a plugin's tests checks its class against the contract.

Its names, such as ``conformance``, come from bertlab-conformance.
"""

from typing import Any

from bertlab.plugins.index import added_name, added_names


def __getattr__(name: str) -> Any:  # noqa: ANN401  a name of any kind
    return added_name(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *added_names(__name__)})
