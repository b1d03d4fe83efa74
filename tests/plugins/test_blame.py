"""An error in code of a plugin or a callback names who raised it, and is no bug of bertlab."""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from bertlab.cli.main import main
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from tests.conftest import Command
from tests.plugins.strange_packages import install

OBJECTIVE = """
from bertlab import NextSentencePrediction
class Late(NextSentencePrediction):
    def loss(self, output, batch):
        wanted = {}
        return wanted["nothing"]
class Early(NextSentencePrediction):
    def prepare(self, sequences, rng, training):
        raise ValueError("two\\nlines")
class Away(NextSentencePrediction):
    def prepare(self, sequences, rng, training):
        from torch.utils.data import get_worker_info
        if get_worker_info() is not None:
            raise ValueError("in a worker")
        return super().prepare(sequences, rng, training)
"""
CALLBACK = """
from lightning.pytorch import Callback
class Mine(Callback):
    def on_train_start(self, trainer, pl_module):
        self.helper()
    def helper(self):
        pl_module = 1 / 0
"""
HOOK = (
    CALLBACK
    + """
from bertlab import hookimpl
@hookimpl
def bertlab_callbacks(run_dir):
    return [Mine()]
"""
)


@pytest.fixture(autouse=True)
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder on ``sys.path`` to install packages in."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    yield folder
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    for name in [name for name in sys.modules if name.endswith("_of_a_stranger")]:
        del sys.modules[name]


def fails(bertlab: Command, tiny_config: Path, *arguments: str) -> str:
    """Return the message of a fit that ends in a mistake; no report of a crash is left."""
    code, _, message = bertlab("fit", "--config", str(tiny_config), *arguments)
    assert code == 2, message
    assert not list(Path.cwd().glob("bertlab-crash-*"))
    assert "BERTLAB_DEBUG=1" in message
    assert "report it" not in message
    return message


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("name", "workers", "line", "words"),
    [
        ("late", 0, 6, "KeyError: 'nothing'"),
        ("early", 0, 9, "ValueError: two lines"),
        ("away", 1, 14, "in prepare: ValueError: in a worker"),
    ],
)
def test_an_objective_that_raises_is_named(
    stranger: Path,
    bertlab: Command,
    tiny_config: Path,
    name: str,
    workers: int,
    line: int,
    words: str,
) -> None:
    module = "objective_of_a_stranger"
    entries = {"late": f"{module}:Late", "early": f"{module}:Early", "away": f"{module}:Away"}
    install(stranger, "their-objective", {"bertlab.objectives": entries}, {module: OBJECTIVE})
    plugins.forget_installed()
    settings = ["--model.objectives", f"[mlm, {name}]", "--data.num_workers", str(workers)]
    message = fails(bertlab, tiny_config, *settings)
    assert "bertlab: error E503: " in message
    assert "their-objective 1.0" in message
    assert f"{stranger / module}.py:{line}, in " in message
    assert words in message


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_an_objective_that_returns_something_else_is_named(
    stranger: Path, bertlab: Command, tiny_config: Path, workers: int
) -> None:
    module = "objective_of_a_stranger"
    code = (
        OBJECTIVE + "class Silent(Early):\n    def prepare(self, sequences, rng, training): ...\n"
    )
    entries = {"bertlab.objectives": {"silent": f"{module}:Silent"}}
    install(stranger, "their-objective", entries, {module: code})
    plugins.forget_installed()
    settings = ["--model.objectives", "[mlm, silent]", "--data.num_workers", workers]
    code, _, message = bertlab("fit", "--config", tiny_config, *settings)
    assert code == 2, message
    told = f"their-objective 1.0 ({module}:Silent): prepare() returned None, expected int"
    assert (
        f"bertlab: error E503: objective 'silent' of {told} ({stranger / module}.py:17)" in message
    )


@pytest.mark.slow
def test_a_traceback_is_there_for_who_asks(
    stranger: Path, tiny_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stranger / "callback_of_a_stranger.py").write_text(CALLBACK)
    monkeypatch.setenv("BERTLAB_DEBUG", "1")
    given = "[{class_path: callback_of_a_stranger.Mine}]"
    with pytest.raises(ZeroDivisionError):
        main(["fit", "--config", str(tiny_config), "--trainer.callbacks", given])


@pytest.mark.slow
def test_a_callback_of_the_config_is_named(
    stranger: Path, bertlab: Command, tiny_config: Path
) -> None:
    file = stranger / "callback_of_a_stranger.py"
    file.write_text(CALLBACK)
    given = "[{class_path: callback_of_a_stranger.Mine}]"
    message = fails(bertlab, tiny_config, "--trainer.callbacks", given)
    expected = f"callback Mine (callback_of_a_stranger) raised an error at {file}:7, in Mine.helper"
    assert expected in message


@pytest.mark.slow
def test_lightning_s_own_callback_is_named(bertlab: Command, tiny_config: Path) -> None:
    given = "[{class_path: ThroughputMonitor, init_args: {batch_size_fn: math.sqrt}}]"
    message = fails(bertlab, tiny_config, "--trainer.callbacks", given)
    assert f"callback ThroughputMonitor of lightning {version('lightning')} (lightning." in message
    assert "throughput_monitor.py:" in message
    assert "`flops_per_batch` attribute" in message


@pytest.mark.slow
def test_a_callback_of_a_plugin_s_hooks_is_named(
    stranger: Path, bertlab: Command, tiny_config: Path
) -> None:
    module = "hooks_of_a_stranger"
    install(stranger, "their-hooks", {"bertlab.hooks": {"mine": module}}, {module: HOOK})
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    message = fails(bertlab, tiny_config)
    assert f"their-hooks 1.0 raised an error at {stranger / module}.py:7" in message


@pytest.mark.slow
def test_a_bug_of_bertlab_is_no_plugin_s(
    bertlab: Command, tiny_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a callback stands further out: it may have called what fails."""

    def fails_inside(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("bertlab.model.module.BertModule.training_step", fails_inside)
    code, _, message = bertlab("fit", "--config", str(tiny_config))
    assert code == 1
    assert "internal error: KeyError: 'ours'" in message


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        ("import nowhere_at_all\n", "Mine", "cannot be imported: ModuleNotFoundError: No module"),
        ("x = 1\nclass Mine(:\n", "Mine", "SyntaxError: invalid syntax"),
        (CALLBACK, "Mien", "has no class 'Mien'; did you mean 'Mine'?"),
        (
            f"{CALLBACK}\nclass Picky(Mine):\n    def __init__(self, size: int = 1):\n"
            "        raise ValueError('wants a size')\n",
            "Picky",
            "a class cannot be made: ValueError: wants a size",
        ),
    ],
)
def test_a_class_that_cannot_be_had_says_why(
    stranger: Path, bertlab: Command, tiny_config: Path, code: str, name: str, words: str
) -> None:
    module = "callback_of_a_stranger"
    (stranger / f"{module}.py").write_text(code)
    given = f"[{{class_path: {module}.{name}}}]"
    exit_code, _, message = bertlab(
        "fit", "--config", str(tiny_config), "--trainer.callbacks", given
    )
    assert exit_code == 2
    assert words in message
    if "Error" in words:  # what went wrong stands somewhere
        assert f"{stranger / module}.py:" in message
