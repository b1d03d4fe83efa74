"""pluggy hooks: our callbacks come through them; a broken plugin is named and left out."""

import sys
from pathlib import Path

import pytest

from bertlab import hooks


def install(folder: Path, name: str, code: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[bertlab.hooks]\n{name} = {name}_hooks\n")
    (folder / f"{name}_hooks.py").write_text(code)


@pytest.fixture(autouse=True)
def fresh_manager() -> None:
    hooks.plugin_manager.cache_clear()
    yield
    hooks.plugin_manager.cache_clear()
    for name in ("kind_hooks", "rude_hooks"):
        sys.modules.pop(name, None)


def test_our_callbacks_and_a_strangers_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from lightning.pytorch import Callback\n"
        "from bertlab.hooks import hookimpl\n"
        "class Kind(Callback):\n    pass\n"
        "@hookimpl\ndef bertlab_callbacks(run_dir):\n    return [Kind()]\n"
    )
    install(tmp_path, "kind", code)
    monkeypatch.syspath_prepend(tmp_path)
    names = {type(callback).__name__ for callback in hooks.run_callbacks(tmp_path)}
    assert {"Kind", "LossCurve", "EvaluationLines", "TokenThroughput"} <= names


def test_a_broken_plugin_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "rude", "raise ImportError('no thanks')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match=r"'rude' of rude .* ImportError: no thanks"):
        callbacks = hooks.run_callbacks(tmp_path)
    assert callbacks
