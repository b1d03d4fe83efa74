"""Names that packages add to bertlab and bertlab.testing."""

import copy
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bertlab
import bertlab.testing
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from tests.plugins.strange_packages import install, without


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = dict(vars(bertlab))
    for name in ("Study", "ModernEncoder", "shade"):
        vars(bertlab).pop(name, None)
    yield
    vars(bertlab).update(kept)
    monkeypatch.undo()
    plugins.forget_installed()
    hooks.hook_modules.cache_clear()
    sys.modules.pop("shading", None)


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [
        ("bertlab", "Study", "bertlab-studies"),
        ("bertlab", "ModernEncoder", "bertlab-modern"),
        ("bertlab.testing", "conformance", "bertlab-conformance"),
    ],
)
def test_a_name_of_a_first_party_package_is_there_or_says_what_to_install(
    module: str, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.import_module(module)
    assert name in dir(found)
    assert callable(getattr(found, name))
    vars(found).pop(name, None)
    without(monkeypatch, package)
    assert name not in dir(found)
    with pytest.raises(ImportError, match=f"{module}.{name} comes with {package}: pip install"):
        exec(f"from {module} import {name}")


def test_a_strangers_name_and_that_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    names = {"shade": "shading:shade", "Encoder": "shading:shade", "Study": "shading:shade"}
    install(tmp_path, "one", {"bertlab.names": names}, {"shading": "shade = 4"})
    plugins.forget_installed()
    assert bertlab.shade == 4
    assert bertlab.Encoder is not bertlab.shade is not bertlab.Study
    del bertlab.shade
    install(tmp_path, "two", {"bertlab.names": names}, {})
    plugins.forget_installed()
    with pytest.raises(ImportError, match=r"one 1.0 and two 1.0 both bring bertlab.shade"):
        bertlab.shade  # noqa: B018


def test_a_method_of_a_loaded_model(
    tmp_path: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = "def shade(model, share):\n    return model.source, share"
    names = {"PretrainedModel.shade": "shading:shade"}
    install(tmp_path, "one", {"bertlab.names": names}, {"shading": code})
    plugins.forget_installed()
    model = bertlab.load(tiny_run)
    assert "shade" in dir(model)
    assert model.shade(share=0.5) == (model.source, 0.5)
    assert model.__class__ is copy.copy(model).__class__
    with pytest.raises(AttributeError, match=r"'bertlab\.PretrainedModel' has no attribute 'shad'"):
        model.shad  # noqa: B018
    without(monkeypatch, "bertlab-pages")
    with pytest.raises(ImportError, match="comes with bertlab-pages: pip install"):
        model.fill  # noqa: B018
