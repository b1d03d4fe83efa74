"""Span-boundary objective (SpanBERT) for bertlab."""
