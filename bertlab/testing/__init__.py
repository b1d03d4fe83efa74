"""The conformance kit: one line in a plugin's tests checks its class against the contract."""

from bertlab.testing.failures import ConformanceFailure
from bertlab.testing.kit import batch_of, checks, conformance

__all__ = ["ConformanceFailure", "batch_of", "checks", "conformance"]
