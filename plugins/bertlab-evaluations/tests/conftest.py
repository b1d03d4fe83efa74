"""Lets evaluations plan the pictures of their page and not draw them."""

import pytest

from bertlab_evaluations import evaluation_page
from bertlab_pages.pictures import svg_of


@pytest.fixture(autouse=True)
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes longer than most evaluations of a small model."""
    monkeypatch.setattr(evaluation_page, "svg_of", lambda _: "<svg></svg>")


@pytest.fixture
def real_svg(blank_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pages of a test show what those of users do."""
    monkeypatch.setattr(evaluation_page, "svg_of", svg_of)
