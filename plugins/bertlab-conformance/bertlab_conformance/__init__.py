"""The conformance kit: one line in a plugin's tests checks its class against the contract."""

from bertlab_conformance.check import ConformanceFailure
from bertlab_conformance.kit import batch_of, conformance, list_checks

__all__ = ["ConformanceFailure", "batch_of", "conformance", "list_checks"]
