"""An entry point that names no class of its module says which one may be meant."""

import sys
from pathlib import Path

import pytest

from bertlab.api.task import Objective
from bertlab.errors import PluginError
from bertlab.plugins import index
from tests.plugins.strange_packages import install


def test_the_nearest_class_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = {"bertlab.objectives": {"data2vec": "data2vec_of_stranger:Data2vec"}}
    install(tmp_path, "vectors", targets, {"data2vec_of_stranger": "class Data2Vec: ...\n"})
    monkeypatch.syspath_prepend(tmp_path)
    index.forget_installed()
    try:
        with pytest.raises(PluginError, match=r"no attribute 'Data2vec'.*did you mean 'Data2Vec'"):
            index.load_class("objective", "data2vec", Objective)
    finally:
        index.forget_installed()
        sys.modules.pop("data2vec_of_stranger", None)
