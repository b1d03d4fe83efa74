"""The conformance kit: one line in a plugin's tests checks its class against the contract."""

from importlib import import_module

# by their modules, which need torch: `bertlab --help` imports this package for its commands
_HOME = {
    "ConformanceFailure": "bertlab_conformance.check",
    "batch_of": "bertlab_conformance.kit",
    "conformance": "bertlab_conformance.kit",
    "list_checks": "bertlab_conformance.kit",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
