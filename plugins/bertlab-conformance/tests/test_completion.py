"""``bertlab completion``: what bash offers, asked of bash itself."""

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bertlab.cli.main import command_names
from bertlab.config.shipped import shipped_configs
from bertlab.plugins.hooks import hook_modules
from bertlab.plugins.index import forget_installed
from bertlab_conformance.completion import completion_script
from tests.conftest import Command
from tests.plugins.strange_packages import install

Offers = Callable[[str], list[str]]
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")


@pytest.fixture(scope="module")
def offers(tmp_path_factory: pytest.TempPathFactory) -> Offers:
    """What is offered at the end of a command line, in a folder with the file my.yaml."""
    folder: Path = tmp_path_factory.mktemp("completion")
    (folder / "script.sh").write_text(completion_script("bash"), "utf-8")
    (folder / "my.yaml").touch()

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        commands = (
            "source ./script.sh",
            f"COMP_WORDS=({' '.join(map(shlex.quote, words))})",
            f"COMP_CWORD={len(words) - 1}",
            "_bertlab",
            'printf "%s\\n" "${COMPREPLY[@]}"',
        )
        done = subprocess.run(
            ["bash", "-c", "\n".join(commands)],
            capture_output=True,
            text=True,
            cwd=folder,
            check=False,
        )
        return done.stdout.split()

    return ask


@pytest.mark.slow
@needs_bash
def test_commands_and_their_options(offers: Offers) -> None:
    assert offers("bertlab ") == command_names()
    assert offers("bertlab emb") == ["embed"]
    assert offers("bertlab embed --lay") == ["--layers", "--layers+"]
    assert "add-seeds" in offers("bertlab study ")
    assert offers("bertlab study run --exec") == ["--executor"]


@pytest.mark.slow
@needs_bash
def test_completion_imports_nothing_of_others_and_runs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = f"open({str(tmp_path / 'sung')!r}, 'w').close()\n"
    hostile = [f"$(touch {tmp_path}/sung)", "`touch sung`", "a;touch sung", "a'b", 'a"b', "plain"]
    groups = {
        f"bertlab.{kind}": {name: "trap_of_completion:X" for name in hostile}
        for kind in ("commands", "executors", "objectives", "encoders", "exporters", "heads")
    }
    groups["bertlab.hooks"] = {"plain": "trap_of_completion"}
    install(tmp_path, "trap", groups, {"trap_of_completion": trap})
    monkeypatch.syspath_prepend(tmp_path)
    forget_installed()
    hook_modules.cache_clear()
    try:
        scripts = [completion_script(shell) for shell in ("bash", "zsh", "fish")]
    finally:
        forget_installed()
        hook_modules.cache_clear()
    assert not (tmp_path / "sung").exists()
    assert not any("touch" in script for script in scripts)
    assert all("plain" in script for script in scripts)
    monkeypatch.chdir(tmp_path)
    subprocess.run(["bash", "-c", scripts[0]], check=True)
    assert not (tmp_path / "sung").exists()


@pytest.mark.slow
@needs_bash
def test_configs_beside_files(offers: Offers) -> None:
    mrpc = [name for name in shipped_configs() if name.startswith("finetune/mr")]
    assert offers("bertlab fit finetune/mr") == mrpc != []
    assert offers("bertlab fit --config finetune/mr") == mrpc
    assert offers("bertlab fit my") == ["my.yaml"]
    assert offers("bertlab fit quickstart --data.corpus m") == ["my.yaml"]


@pytest.mark.slow
@needs_bash
def test_keys_of_texts_and_of_rows(offers: Offers) -> None:
    for key in (
        "model.objectives.mlm.rate",
        "data.test",  # of rows, not of texts
        "seeds",  # of a package's hook
    ):
        assert f"--{key}" in offers(f"bertlab fit --{key}"), key


@pytest.mark.slow
def test_scripts_of_other_shells_and_mistakes(bertlab: Command) -> None:
    code, output, _ = bertlab("completion", "zsh")
    assert code == 0
    assert "bashcompinit" in output
    code, _, errors = bertlab("completion", "bsh")
    assert code == 2
    assert "did you mean 'bash'?" in errors
    code, output, _ = bertlab("completion", "--help")
    assert code == 0
    assert "bash-completion/completions/bertlab" in output
