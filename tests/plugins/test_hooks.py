"""pluggy hooks: ours and strangers'; one that is broken is named and left out."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.api.batch import pack
from bertlab.cli.main import main
from bertlab.errors import ConfigError
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from bertlab_studies.report.render import html, latex, markdown, print_report
from bertlab_studies.report.report import report_of
from made_up_scores import made_up_study
from tests.plugins.strange_packages import install

HEAD = "from bertlab.plugins.hooks import hookimpl\n"
DOCS = Path(__file__).parents[2] / "docs" / "plugins.md"


@pytest.fixture(autouse=True)
def fresh_modules() -> Iterator[None]:
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    yield
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    for name in [name for name in sys.modules if name.endswith("_of_a_stranger")]:
        del sys.modules[name]


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on ``sys.path`` to install packages with hooks in."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def add_hooks(folder: Path, name: str, code: str, contract: str | None = None) -> None:
    module = f"{name}_of_a_stranger"
    groups = {"bertlab.hooks": {name: module}}
    if contract is not None:
        groups[plugins.CONTRACT_GROUP] = {"contract": contract}
    install(folder, name, groups, {module: code})


def test_bertlab_callbacks_of_all_are_added(stranger: Path) -> None:
    code = (
        "from lightning.pytorch import Callback\n" + HEAD + "class Kind(Callback):\n    pass\n"
        "@hookimpl\ndef bertlab_callbacks(run_dir):\n    return [Kind()]\n"
    )
    add_hooks(stranger, "kind", code)
    names = {type(callback).__name__ for callback in hooks.run_callbacks(stranger)}
    assert {"Kind", "LossCurve", "EvaluationLines", "TokenThroughput"} <= names


COMMAND = (
    "from bertlab.plugins.hooks import Subcommand\n" + HEAD + "def greet(argv):\n"
    "    print('hello', *argv)\n    return 7\n"
    "@hookimpl\ndef bertlab_subcommands():\n"
    "    return [Subcommand('greet', 'say hello', greet), Subcommand('fit', 'steal', greet)]\n"
)


def test_bertlab_subcommands_are_run_and_listed(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "polite", COMMAND)
    assert main(["greet", "you"]) == 7
    assert capsys.readouterr().out == "hello you\n"
    assert main(["--help"]) == 0
    assert "say hello" in (help_text := capsys.readouterr().out)
    assert "steal" not in help_text
    assert main(["gret"]) == 2
    assert "did you mean 'greet'" in capsys.readouterr().err


def test_bertlab_inspect_batch_sees_what_the_encoder_reads(stranger: Path) -> None:
    code = HEAD + "SEEN = []\n@hookimpl\ndef bertlab_inspect_batch(batch, stage, step):\n"
    code += "    SEEN.append((batch.input_ids.tolist(), stage, step))\n"
    add_hooks(stranger, "curious", code)
    assert hooks.inspects_batches()
    batch = pack([[1, 2, 3]])
    hooks.inspect_batch(batch, "train", 5)
    seen = sys.modules["curious_of_a_stranger"].SEEN
    assert seen == [([1, 2, 3], "train", 5)]


def test_a_plugin_may_ask_for_some_arguments_only(stranger: Path) -> None:
    code = HEAD + "SEEN = []\n@hookimpl\ndef bertlab_inspect_batch(step):\n    SEEN.append(step)\n"
    add_hooks(stranger, "modest", code)
    hooks.inspect_batch(pack([[1]]), "train", 5)
    assert sys.modules["modest_of_a_stranger"].SEEN == [5]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError('no thanks')", "ImportError: no thanks"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        (HEAD + "@hookimpl\ndef bertlab_callback(run_dir): ...", "did you mean 'bertlab_callb"),
        (HEAD + "@hookimpl\ndef bertlab_callbacks(folder): ...", "Argument.*folder.*declared"),
        (HEAD + "@hookimpl\ndef bertlab_callbacks(run_dir): return 1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_broken_plugin_is_named_and_left_out(
    stranger: Path, code: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "rude", code)
    assert len(hooks.run_callbacks(stranger)) == len(hooks.run_callbacks(stranger)) >= 3
    error = " ".join(capfd.readouterr().err.split())
    assert error.count("is left out") == 1
    assert "bertlab: warning: hooks 'rude' of rude 1.0 (rude_of_a_stranger)" in error
    assert re.search(words, error)


def test_what_a_plugin_means_for_the_user_ends_the_command(stranger: Path) -> None:
    code = "from bertlab.errors import ConfigError\n" + HEAD
    code += "@hookimpl\ndef bertlab_callbacks(run_dir): raise ConfigError('set x')\n"
    add_hooks(stranger, "strict", code)
    with pytest.raises(ConfigError, match="set x"):
        hooks.run_callbacks(stranger)


def test_hooks_of_another_contract_are_left_out(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "old", "raise RuntimeError", contract="v1")
    hooks.hook_modules()
    assert "version 1 of the plugin contract" in capsys.readouterr().err


def test_what_hooks_print_on_import_is_kept_from_the_results(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "loud", "print('HELLO')")
    hooks.hook_modules()
    assert capsys.readouterr().out == ""


def test_bertlab_report_sections_are_in_every_form_of_a_report(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "from bertlab.plugins.hooks import ReportSection\n" + HEAD + "@hookimpl\n"
    code += "def bertlab_report_sections(scores):\n"
    code += "    return [ReportSection('Energy', ('kWh of ' + scores.name,), ('v', 'used'),"
    code += " (('mlm', '7 & 8'),))]\n"
    add_hooks(stranger, "frugal", code)
    report = report_of(made_up_study(name="small"))
    print_report(report)
    assert "kWh of small" in (printed := capsys.readouterr().out)
    assert "7 & 8" in printed
    assert "## Energy\n\nkWh of small\n\n| v | used |" in markdown(report)
    assert "<h2>Energy</h2>\n<p>kWh of small</p>" in html(report)
    assert r"7 \& 8" in latex(report)


def all_hooks() -> list[str]:
    return [name for name in vars(hooks) if name.startswith("bertlab_")]


@pytest.mark.parametrize("hook", all_hooks())
def test_every_hook_is_documented_and_tested(hook: str) -> None:
    assert f"`{hook}(" in DOCS.read_text("utf-8")
    tests = [*Path(__file__).parents[1].rglob("test_*.py")]
    assert any(f"def test_{hook}_" in path.read_text("utf-8") for path in tests)
