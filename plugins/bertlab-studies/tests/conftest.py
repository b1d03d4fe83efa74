"""Lets ``python -m fake_fit`` find the made-up fit, in whatever process it is started."""

import os
from pathlib import Path

import pytest

from bertlab_pages.pictures import pdf_of, svg_of
from bertlab_studies.report import plots

os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)


@pytest.fixture(autouse=True)
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports plan their pictures and not draw them, which takes longer than all the rest."""
    monkeypatch.setattr(plots, "svg_of", lambda _: "<svg></svg>")
    monkeypatch.setattr(plots, "pdf_of", lambda _: b"%PDF")


@pytest.fixture
def real_svg(blank_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reports of a test draw SVG as those of users do."""
    monkeypatch.setattr(plots, "svg_of", svg_of)


@pytest.fixture
def real_pdf(blank_pictures: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reports of a test draw PDF as those of users do."""
    monkeypatch.setattr(plots, "pdf_of", pdf_of)
