"""The toy vocabulary in transformers' hands."""

from tests.heads.conftest import hugging_face_tokenizer

__all__ = ["hugging_face_tokenizer"]
