"""The conformance kit: one line in a plugin's tests checks its class against the contract."""

from bertlab.testing.check import ConformanceFailure
from bertlab.testing.kit import batch_of, conformance, list_checks

__all__ = ["ConformanceFailure", "batch_of", "conformance", "list_checks"]
