"""`bertlab plugins`, and what strangers' packages can and cannot do to a command."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.cli.main import main
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from bertlab.plugins.index import OWN_PACKAGE
from tests.conftest import Command
from tests.plugins.strange_packages import install

NSP = "from bertlab.objectives.classification import NextSentencePrediction\n"
MODULE = (
    NSP + "class Good(NextSentencePrediction):\n"
    '    """Guess.\n\n    Args:\n        rate: how often.\n    """\n\n'
    "    def __init__(self, rate: float = 0.5) -> None:\n        super().__init__()\n"
)


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a good, a broken, a loud and a shadowing objective, and a broken hook module."""
    targets = {
        "good": "good_of_stranger:Good",
        "broken": "broken_of_stranger:X",
        "loud": "loud_of_stranger:Good",
        "nsp": "good_of_stranger:Good",
    }
    groups = {"bertlab.objectives": targets, "bertlab.hooks": {"rude": "broken_of_stranger"}}
    modules = {
        "good_of_stranger": MODULE,
        "broken_of_stranger": "raise ImportError('no rain coat')\n",
        "loud_of_stranger": "print('HELLO')\n" + MODULE,
    }
    install(tmp_path, "stranger", groups, modules, "2.1")
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    hooks.hook_modules.cache_clear()
    yield tmp_path
    plugins.forget_installed()
    hooks.hook_modules.cache_clear()
    for name in modules:
        sys.modules.pop(name, None)


def test_the_list_says_what_comes_from_where(
    strangers: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # no cell takes two lines
    code, printed, errors = bertlab("plugins", "list")
    assert (code, errors) == (0, "")
    words = " ".join(printed.split())
    assert "objective │ mlm │ bertlab-core 0.1.0" in words
    assert "objective │ good │ stranger 2.1" in words
    assert "hooks │ rude │ stranger 2.1" in words
    assert {"good_of_stranger", "broken_of_stranger", "loud_of_stranger"}.isdisjoint(sys.modules)


def test_show_gives_arguments_with_defaults_and_help(strangers: Path, bertlab: Command) -> None:
    code, printed, _ = bertlab("plugins", "show", "good", "mlm")
    assert code == 0
    words = " ".join(printed.split())
    assert "good: objective of stranger 2.1" in words
    assert "│ rate │ 0.5 │ how often." in words
    assert "requires_pairs: True" in words
    assert "│ static_copies │ 10 │ number of masked copies" in words
    code, printed, error = bertlab("plugins", "show", "pages", "bertlab-guard")
    assert code == 0, error
    words = " ".join(printed.split())
    assert "not called with --without_hooks bertlab-pages" in words
    assert "│ bertlab_run_ended │ Write ``run.html``. │" in words
    assert "│ task_name │ None │ what run.html calls the task" in words
    assert "│ check_every │" in words


@pytest.mark.slow
def test_check_says_what_is_broken_and_why(strangers: Path, bertlab: Command) -> None:
    code, printed, _ = bertlab("plugins", "check")
    assert code == 2
    lines = printed.splitlines()
    target = "bertlab.objectives.masked_lm:MaskedLM"
    assert f"ok     objective 'mlm' of bertlab-core 0.1.0 ({target})" in lines
    assert "ok     objective 'good' of stranger 2.1 (good_of_stranger:Good)" in lines
    assert (
        "broken objective 'broken' of stranger 2.1 (broken_of_stranger:X): "
        "cannot be imported: ImportError: no rain coat"
    ) in printed
    assert "note   objective 'loud' of stranger 2.1 (loud_of_stranger:Good): prints when" in printed
    assert "ok     objective 'nsp' of stranger 2.1 (good_of_stranger:Good)" in lines
    assert "broken hooks 'rude' of stranger 2.1 (broken_of_stranger): ImportError" in printed
    assert lines[-1].endswith("plugins, 2 broken")


@pytest.mark.nightly
def test_check_names_a_package_that_asks_for_another_bertlab(
    strangers: Path, bertlab: Command
) -> None:
    metadata = strangers / "stranger-2.1.dist-info" / "METADATA"
    text = metadata.read_text()
    for asked, state in ((f"{OWN_PACKAGE}<1,>=0.1", "ok"), (f"{OWN_PACKAGE}<9,>=7.0", "note")):
        metadata.write_text(f"{text}Requires-Dist: {asked}\n")
        plugins.forget_installed()
        (line,) = [each for each in bertlab("plugins", "check")[1].splitlines() if "'good'" in each]
        assert line.startswith(state)
    assert line.endswith(f": its package asks for {OWN_PACKAGE} <9,>=7.0, found 0.1.0")


HOSTILE = {
    "loops": ("while True: pass\n", "its import takes more than 2 s"),
    "exits": ("import os\nos._exit(0)\n", "its import ends the process (code 0)"),
    "leaves": ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    "dies": ("import os\nos.kill(os.getpid(), 9)\n", "its import ends the process (code -9)"),
    "writes": ("import os\nos.write(1, b'HELLO')\n" + MODULE, ""),
    "closes": ("import os, sys\nsys.stdout = sys.stderr = None\nos.chdir('/')\n" + MODULE, ""),
    "hides": (
        "class E(BaseException):\n    def __str__(self): raise ValueError\nraise E\n",
        "E: (it cannot say why)",
    ),
}


@pytest.mark.nightly
def test_hostile_imports_hurt_only_who_names_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    targets = {name: f"hostile_{name}:Good" for name in HOSTILE}
    modules = {f"hostile_{name}": code for name, (code, _) in HOSTILE.items()}
    groups = {"bertlab.objectives": targets, "bertlab.hooks": {"still": "hostile_dies"}}
    install(tmp_path, "hostile", groups, modules)
    install(tmp_path, "odd", {"bertlab.contract": {"contract": "v" + "9" * 5000}}, {})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("bertlab_conformance.plugin_check.LIMIT", 2.0)
    plugins.forget_installed()
    here = Path.cwd()
    try:
        assert main(["plugins", "list"]) == 0
        assert "hostile 1.0" in capfd.readouterr().out
        code = main(["plugins", "check"])
    finally:
        plugins.forget_installed()
    assert code == 2
    assert Path.cwd() == here
    printed = capfd.readouterr().out
    assert "HELLO" not in printed
    assert not [name for name in sys.modules if name.startswith("hostile_")]
    for name, (_, words) in HOSTILE.items():
        (line,) = [each for each in printed.splitlines() if f"(hostile_{name}:Good)" in each]
        assert line.startswith("broken" if words else "ok"), line
        assert words in line
    assert (
        "broken hooks 'still' of hostile 1.0 (hostile_dies): its import ends the process" in printed
    )
    assert "ok     objective 'mlm' of bertlab" in printed


@pytest.mark.slow
def test_a_wait_for_a_strangers_import_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bertlab: Command
) -> None:
    module = "import time\ntime.sleep(0.5)\n" + MODULE
    targets = {"slow": "slow_one:Good"}
    install(tmp_path, "slow", {"bertlab.objectives": targets}, {"slow_one": module})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("bertlab.plugins.index.PATIENCE", 0.1)
    plugins.forget_installed()
    try:
        code, _, error = bertlab("plugins", "show", "slow")
    finally:
        plugins.forget_installed()
        sys.modules.pop("slow_one", None)
    assert code == 0
    assert "warning: objective 'slow' of slow 1.0 (slow_one:Good) is still being imported" in error


@pytest.mark.slow
def test_check_of_bertlab_alone_is_clean(bertlab: Command) -> None:
    code, printed, _ = bertlab("plugins", "check")
    own = [line for line in printed.splitlines() if " of bertlab-" in line]
    assert len(own) >= 13
    assert all(line.startswith("ok ") for line in own)
    assert code in (0, 2)  # whatever else is installed here


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lst",), "plugins: there is no 'lst'; did you mean 'list'?"),
        (("show",), "plugins show: found no name"),
        (("show", "mllm"), "no plugin is called 'mllm'; did you mean 'mlm'?"),
        (("list", "all"), "plugins list: found 'all', expected nothing after it"),
        (("show", "broken"), "ImportError: no rain coat"),
    ],
)
def test_mistakes_are_one_line(
    strangers: Path, bertlab: Command, arguments: tuple[str, ...], words: str
) -> None:
    code, _, error = bertlab("plugins", *arguments)
    assert code == 2
    assert words in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_strangers_do_not_disturb_who_does_not_name_them(
    strangers: Path, bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    code, printed, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", tmp_path / "run", "--trainer.max_steps", 3
    )
    assert code == 0
    assert "nsp accuracy" in printed
    assert error.count("bertlab: warning: hooks 'rude' of stranger 2.1") == 1
    code, _, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", tmp_path / "other",
        "--model.objectives", "[mlm, broken]",
    )  # fmt: skip
    assert code == 2
    assert "'broken' of stranger 2.1 (broken_of_stranger:X) cannot be imported" in error
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_fifty_packages_are_listed_without_torch(tmp_path: Path) -> None:
    for number in range(50):
        targets = {f"objective_{number}": f"module_{number}:Class"}
        install(tmp_path, f"package-{number}", {"bertlab.objectives": targets}, {})
    code = (
        "import sys, bertlab.cli.main\n"
        "code = bertlab.cli.main.main(['plugins', 'list'])\n"
        "heavy = {'torch', 'lightning', 'numpy', 'jsonargparse', 'transformers'}\n"
        "sys.exit(code or sorted(heavy & sys.modules.keys()) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("package-") == 50
