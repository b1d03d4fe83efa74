"""SpanBoundary: the conformance kit, and what is its own."""

from bertlab.testing import conformance
from bertlab_spanbert.span_boundary import SpanBoundary

test_conformance = conformance(SpanBoundary, companions={"mlm": {"unit": "span"}})
