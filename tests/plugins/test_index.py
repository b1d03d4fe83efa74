"""The index of entry points: names, strangers, and broken plugins."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torchmetrics import Metric

from bertlab.api.encoder import Encoder
from bertlab.api.task import Head, Objective
from bertlab.errors import PluginError
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.plugins import index as plugins
from bertlab.plugins.index import Kind
from tests.conftest import Command
from tests.plugins.strange_packages import install

NSP = "from bertlab.objectives.classification import NextSentencePrediction\n"
MODULES = {
    "stranger_objective": NSP
    + "class Good(NextSentencePrediction):\n    pass\n"
    + "class NoTask:\n    pass\n"
    + "class Narrow(NextSentencePrediction):\n    def loss(self, output): ...\n"
    + "class Greedy(NextSentencePrediction):\n    def __init__(self, *rates): super().__init__()\n"
    + "class Roomy(NextSentencePrediction):\n"
    + "    def loss(self, output, batch, scale=1.0): return super().loss(output, batch)\n",
    "stranger_unfinished": "from bertlab.api.task import Objective\nclass Half(Objective):\n"
    "    def build(self, context): ...\n    def loss(self, output, batch): ...\n",
    "stranger_broken": "raise RuntimeError('it rained')\n",
    "stranger_leaving": "import sys\nsys.exit('bye')\n",
    "stranger_loud": NSP + "print('HELLO')\nclass Loud(NextSentencePrediction):\n    pass\n",
}
OBJECTIVES = {
    "good": "stranger_objective:Good",
    "absent": "stranger_objective:Absent",
    "no_task": "stranger_objective:NoTask",
    "narrow": "stranger_objective:Narrow",
    "greedy": "stranger_objective:Greedy",
    "roomy": "stranger_objective:Roomy",
    "half": "stranger_unfinished:Half",
    "broken": "stranger_broken:Anything",
    "leaving": "stranger_leaving:Anything",
    "loud": "stranger_loud:Loud",
    "mlm": "stranger_broken:Anything",
    "twice": "stranger_objective:Good",
}


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install packages with good and bad objectives, and some of other contracts."""
    install(tmp_path, "stranger", {"bertlab.objectives": OBJECTIVES}, MODULES, "1.2")
    target = "stranger_objective:Good"
    install(tmp_path, "other", {"bertlab.objectives": {"twice": target}}, {})
    for package, stated in {
        "old": {"contract": "v1"},
        "silent": {},
        "odd": {"contract": "first"},
        "before": {"contract": "v2"},
        "current": {"contract": "v3"},
        "new": {"contract": "v9"},
    }.items():
        groups = {"bertlab.objectives": {package: target}, plugins.CONTRACT_GROUP: stated}
        install(tmp_path, package, groups, {})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    yield tmp_path
    plugins.forget_installed()
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("encoder", {"bert"}),
        ("objective", {"mlm", "nsp", "clm"}),
        ("head", {"single_sentence", "sentence_pair", "tagging", "span", "multiple_choice"}),
        ("source", {"hf", "python-english"}),
        ("metric", set()),
        ("tokenizer", {"wordpiece", "bpe", "unigram"}),
    ],
)
def test_our_own_come_through_the_same_index(kind: Kind, names: set[str]) -> None:
    own = {each.name for each in plugins.listed(kind) if each.package in plugins.FIRST_PARTY}
    assert names <= own
    bases = {"encoder": Encoder, "objective": Objective, "head": Head, "metric": Metric}
    for name in own if kind in bases else ():
        assert issubclass(plugins.load_class(kind, name, bases[kind]), bases[kind])


def test_a_strangers_class_is_found_and_listing_imports_nothing(stranger: Path) -> None:
    listed = plugins.installed("objective")
    assert listed["good"].package == "stranger"
    assert listed["good"].version == "1.2"
    assert "stranger_objective" not in sys.modules
    assert plugins.load_class("objective", "good", Objective).__name__ == "Good"


def test_a_built_in_name_cannot_be_taken_over(stranger: Path) -> None:
    assert plugins.load_class("objective", "mlm", Objective) is MaskedLM
    assert plugins.installed("objective")["mlm"].package == "bertlab-core"
    assert plugins.installed("objective")["stranger:mlm"].package == "stranger"
    assert "stranger:mlm" in list(plugins.installed("objective"))


@pytest.mark.parametrize(
    "name", ["good", "roomy", "current", "before", "stranger:good", "stranger:twice"]
)
def test_what_keeps_the_contract_is_loaded(stranger: Path, name: str) -> None:
    assert issubclass(plugins.load_class("objective", name, Objective), Objective)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "'broken' of stranger 1.2 .* RuntimeError: it rained"),
        ("leaving", "SystemExit: bye"),
        ("absent", "has no attribute 'Absent'"),
        ("no_task", "not a subclass of bertlab.api.task.Objective"),
        ("half", "does not define decode, prepare"),
        ("narrow", r"found loss\(self, output\), expected loss\(self, output, batch\)"),
        ("greedy", r"__init__ takes \*rates; its arguments are config keys"),
        (
            "twice",
            "'twice' is a name in several packages; expected other:twice or stranger:twice",
        ),
        ("stranger:god", "no objective is called 'stranger:god'"),
        (
            "old",
            "version 1 of the plugin contract, .* has version 3; upgrade it: pip install -U old; "
            "if it is yours, docs/plugins.md, 'Versions of the contract', says what to change",
        ),
        ("silent", "version 1 of the plugin contract.*and how a package states its version"),
        ("odd", "version 1 of the plugin contract"),
        ("new", r"version 9 of the plugin contract.*upgrade bertlab"),
        ("goood", "did you mean 'good'"),
    ],
)
def test_a_bad_plugin_hurts_only_who_names_it(stranger: Path, name: str, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        plugins.load_class("objective", name, Objective)


def test_what_an_import_prints_is_kept_from_the_results(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins.load_class("objective", "loud", Objective)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "HELLO\n"


def test_an_unknown_encoder_lists_what_is_installed() -> None:
    with pytest.raises(PluginError, match=r"no encoder is called 'brt'; did you mean 'bert'\?"):
        plugins.load_class("encoder", "brt", Encoder)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe[bertlab.objectives]", b"[bertlab.objectives]\nfoo\n"]
)
def test_a_package_whose_entry_points_cannot_be_read_is_named(
    stranger: Path, bertlab: Command, content: bytes
) -> None:
    (stranger / "other-1.0.dist-info" / "entry_points.txt").write_bytes(content)
    plugins.forget_installed()
    code, _, error = bertlab("fit", "quickstart")
    assert code == 2
    assert f"error E501: {stranger}: entry_points.txt of other: " in error


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_entry_points_that_have_no_end_are_not_read(
    stranger: Path, bertlab: Command, make: Callable[[Path], None]
) -> None:
    file = stranger / "other-1.0.dist-info" / "entry_points.txt"
    file.unlink()
    make(file)
    plugins.forget_installed()
    code, _, error = bertlab("plugins", "list")
    assert code == 2
    assert f"error E501: {file}: is no file" in error


@pytest.mark.parametrize("content", [None, b"", b"\xa2\x00\xff", b"Version: 1\n"])
def test_a_package_without_a_name_is_used_as_unknown(stranger: Path, content: bytes | None) -> None:
    metadata = stranger / "stranger-1.2.dist-info" / "METADATA"
    metadata.unlink()
    if content is not None:
        metadata.write_bytes(content)
    plugins.forget_installed()
    assert plugins.installed("objective")["good"].package == "unknown"
    assert plugins.load_class("objective", "good", Objective).__name__ == "Good"
