"""SpanBoundary: the conformance kit, and what is its own."""

from bertlab_spanbert.span_boundary import SpanBoundary

from bertlab.testing import conformance

test_conformance = conformance(SpanBoundary, companions={"mlm": {"unit": "span"}})
