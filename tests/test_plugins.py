"""The index of entry points: names, strangers, and broken plugins."""

import sys
from pathlib import Path

import pytest

from bertlab import plugins
from bertlab.encoders.base import Encoder
from bertlab.errors import PluginError
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.tasks import Objective


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package with one good and several bad objectives, one named as ours is."""
    info = tmp_path / "stranger-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[bertlab.objectives]\n"
        "good = stranger_objective:Good\n"
        "absent = stranger_objective:Absent\n"
        "no_task = stranger_objective:NoTask\n"
        "broken = stranger_broken:Anything\n"
        "mlm = stranger_broken:Anything\n"
    )
    (tmp_path / "stranger_objective.py").write_text(
        "from bertlab.objectives.next_sentence import NextSentencePrediction\n"
        "class Good(NextSentencePrediction):\n    pass\n"
        "class NoTask:\n    pass\n"
    )
    (tmp_path / "stranger_broken.py").write_text("raise RuntimeError('it rained')\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.installed.cache_clear()
    yield tmp_path
    plugins.installed.cache_clear()
    for name in ("stranger_objective", "stranger_broken"):
        sys.modules.pop(name, None)


def test_our_own_come_through_the_same_index() -> None:
    assert {"mlm", "nsp", "clm"} <= plugins.installed("objective").keys()
    assert plugins.installed("encoder")["bert"].package == "bertlab"
    assert plugins.load_class("objective", "mlm", Objective) is MaskedLM


def test_a_strangers_class_is_found_and_listing_imports_nothing(stranger: Path) -> None:
    listed = plugins.installed("objective")
    assert listed["good"].package == "stranger"
    assert listed["good"].version == "1.2"
    assert "stranger_objective" not in sys.modules
    assert plugins.load_class("objective", "good", Objective).__name__ == "Good"


def test_a_built_in_name_cannot_be_taken_over(stranger: Path) -> None:
    assert plugins.load_class("objective", "mlm", Objective) is MaskedLM


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "RuntimeError: it rained"),
        ("absent", "has no attribute 'Absent'"),
        ("no_task", "not a subclass of bertlab.tasks.Objective"),
        ("goood", "did you mean 'good'"),
    ],
)
def test_a_bad_plugin_hurts_only_who_names_it(stranger: Path, name: str, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        plugins.load_class("objective", name, Objective)


def test_an_unknown_encoder_lists_what_is_installed() -> None:
    with pytest.raises(PluginError, match=r"no encoder is called 'brt'; did you mean 'bert'\?"):
        plugins.load_class("encoder", "brt", Encoder)
