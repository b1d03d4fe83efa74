"""``bertlab new-plugin``: packages that work as they are, and what is refused."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from bertlab.api import CONTRACT
from bertlab.cli.main import main
from bertlab.plugins.index import GROUPS, OWN_PACKAGE
from bertlab_conformance import scaffold
from bertlab_conformance.scaffold import GROUP_OF_KIND, USES
from tests.conftest import Command
from tests.plugins.plugin_environment import PluginEnvironment
from tests.plugins.strange_packages import install

KINDS = list(GROUP_OF_KIND)
PACKAGES = {kind: f"my-{kind.replace('_', '-')}" for kind in KINDS}
OUR_RULES = Path(__file__).parents[3] / "pyproject.toml"
LONG = "abcdefghij-klmnopqrst-uvwxyzabcd-efghijk"


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_is_complete(bertlab: Command, tmp_path: Path, kind: str) -> None:
    code, output, error = bertlab("new-plugin", kind, "my-thing")
    assert (code, error) == (0, "")
    folder = tmp_path / "my-thing"
    expected = {
        ".github/workflows/tests.yml",
        "LICENSE",
        "README.md",
        "configs/my-thing.yaml",
        "my_thing/__init__.py",
        "my_thing/my_thing.py",
        "pyproject.toml",
        "tests/test_my_thing.py",
    }
    if kind in USES:
        expected -= {"configs/my-thing.yaml"}
    if kind == "hooks":
        expected ^= {"my_thing/my_thing.py", "my_thing/hooks.py", "my_thing/gradient_norm.py"}
    assert files_of(folder) == expected
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    target = "my_thing.hooks" if kind == "hooks" else "my_thing.my_thing:MyThing"
    assert project["name"] == "my-thing"
    assert project["dependencies"] == [f"{OWN_PACKAGE}>=0.1,<1"]
    assert project["optional-dependencies"]["test"][0] == "bertlab-conformance>=0.1,<1"
    assert project["license"] == "MIT"
    workflow = yaml.safe_load((folder / ".github/workflows/tests.yml").read_text())
    assert "bertlab plugins check" in [
        each.get("run") for each in workflow["jobs"]["tests"]["steps"]
    ]
    assert project["entry-points"] == {
        GROUPS.get(kind, "bertlab.hooks"): {"my_thing": target},
        "bertlab.contract": {"contract": f"v{CONTRACT}"},
    }
    assert "pip install -e 'my-thing[test]' && pytest my-thing\n" in output
    if kind in USES:
        assert f"\n  bertlab {USES[kind].format(name='my_thing')}\n" in output
    else:
        assert isinstance(yaml.safe_load((folder / "configs/my-thing.yaml").read_text()), dict)
        assert "bertlab fit --config my-thing/configs/my-thing.yaml\n" in output
    for path in expected:
        assert not re.search(r"\$\w|\$\{(?!\{)", (folder / path).read_text())


def test_bertlab_before_a_name_is_the_packages_only(bertlab: Command, tmp_path: Path) -> None:
    code, _, _ = bertlab("new-plugin", "objective", "bertlab-order", "--output", "plugins/order")
    assert code == 0
    assert "bertlab_order/order.py" in files_of(tmp_path / "plugins/order")
    text = (tmp_path / "plugins/order/pyproject.toml").read_text()
    assert 'name = "bertlab-order"' in text
    assert 'order = "bertlab_order.order:Order"' in text


@pytest.mark.parametrize("kind", ["objective", "head"])
def test_a_class_is_thirty_lines_or_less(bertlab: Command, tmp_path: Path, kind: str) -> None:
    """Without imports, docstrings and blank lines."""
    bertlab("new-plugin", kind, "my-thing")
    tree = ast.parse((tmp_path / "my-thing/my_thing/my_thing.py").read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            node.body = node.body[1:]  # the docstring
    bare = [line for line in ast.unparse(tree).splitlines() if line.strip()]
    assert len(bare) <= 30


def test_a_path_with_spaces_is_quoted(bertlab: Command, tmp_path: Path) -> None:
    code, output, _ = bertlab("new-plugin", "hooks", "my-hooks", "--output", tmp_path / "a b")
    assert code == 0
    assert f"pip install -e '{tmp_path}/a b[test]' && pytest '{tmp_path}/a b'\n" in output
    assert f"bertlab fit --config '{tmp_path}/a b/configs/my-hooks.yaml'\n" in output


@pytest.mark.parametrize("arguments", [[], ["--help"], ["objective", "-h"]])
def test_help_names_every_kind(bertlab: Command, tmp_path: Path, arguments: list[str]) -> None:
    code, output, error = bertlab("new-plugin", *arguments)
    assert (code, error) == (0, "")
    assert ", ".join(KINDS) in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["objectives", "a-task"], r"KIND: found 'objectives'; did you mean 'objective'\?"),
        (["thing", "a-task"], r"KIND: found 'thing' \(there are: encoder, objective, head"),
        (["objective"], "expected KIND NAME"),
        (["objective", "a", "b"], "expected KIND NAME"),
        (["objective", "a-task", "--outptu", "b"], "found 'objective a-task --outptu b'"),
        (["objective", "a-task", "--output"], "--output: expected a value after it"),
        (["objective", "MyTask"], r"NAME: found 'MyTask', .*did you mean 'my-task'\?"),
        (["objective", "my_task"], r"did you mean 'my-task'\?"),
        (["objective", "my task"], r"did you mean 'my-task'\?"),
        (["objective", "2-tasks"], r"did you mean 'tasks'\?"),
        (["objective", "../task"], r"did you mean 'task'\?"),
        (["objective", "my--task"], r"did you mean 'my-task'\?"),
        (["objective", "a" * 41], "at most 40"),
        (["objective", "é"], "as in my-objective$"),
        (["objective", "lambda"], "lambda cannot be a name in Python"),
        (["objective", "bertlab-class"], "class cannot be a name in Python"),
        (["objective", "bertlab-2d"], "2d cannot be a name in Python"),
        (["objective", "null"], "null is no name in a YAML config"),
        (["objective", "mlm"], "bertlab-core .* has a plugin 'mlm' of the kind objective"),
        (
            ["objective", "bertlab-nsp"],
            "bertlab-core .* has a plugin 'nsp' of the kind objective",
        ),
        (["head", "single-sentence"], "has a plugin 'single_sentence' of the kind head"),
        (["source", "python-english"], "has a plugin 'python-english' of the kind source"),
        (["objective", "numpy"], "the package numpy .* is installed"),
        (["objective", "json"], "a module json is there already"),
        (["objective", "tests"], "a module tests is there already"),
        (["objective", "bertlab-objective"], "its class would be called Objective"),
        (["head", "column"], "its class would be called Column"),
        (["objective", "bertlab-bert-encoder"], "its class would be called BertEncoder"),
        (["objective", "none"], "None cannot be a name in Python"),
    ],
)
def test_what_is_refused(
    bertlab: Command, tmp_path: Path, arguments: list[str], words: str
) -> None:
    code, output, error = bertlab("new-plugin", *arguments)
    assert (code, output) == (2, "")
    assert error.startswith("bertlab: error E103: ")
    assert error.count("\n") == 1
    assert re.search(words, error.strip())
    assert not list(tmp_path.iterdir())


def test_a_name_that_an_installed_plugin_has(
    bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "some-tasks", {"bertlab.objectives": {"my_task": "nowhere:Task"}}, {})
    monkeypatch.syspath_prepend(tmp_path)
    _, _, error = bertlab("new-plugin", "objective", "my-task")
    assert "some-tasks 1.0 has a plugin 'my_task' of the kind objective" in error
    assert bertlab("new-plugin", "head", "my-task")[0] == 0


def test_a_folder_that_is_there_is_left_alone(bertlab: Command, tmp_path: Path) -> None:
    (tmp_path / "my-task").mkdir()
    (tmp_path / "my-task/notes.txt").write_text("mine")
    code, _, error = bertlab("new-plugin", "objective", "my-task")
    assert code == 2
    assert error == "bertlab: error E104: my-task: is there already; choose another --output\n"
    assert files_of(tmp_path) == {"my-task/notes.txt"}


def test_nothing_is_left_of_a_package_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def write_some(path: Path, text: str) -> None:
        if written:
            raise OSError(28, "No space left on device", str(path))
        written.append(path.write_bytes(text.encode()))

    monkeypatch.setattr(scaffold, "write_text", write_some)
    assert main(["new-plugin", "objective", "my-task"]) == 2
    assert written
    assert not list(tmp_path.iterdir())


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from bertlab.cli.main import main;"
        "code = main(['new-plugin', 'hooks', 'my-hooks']);"
        "heavy = {'torch', 'lightning', 'numpy', 'jsonargparse'} & sys.modules.keys();"
        "print(code, sorted(heavy))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout.endswith("\n0 []\n")


@pytest.mark.slow
def test_code_is_formatted_and_has_nothing_for_ruff(bertlab: Command, tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    for kind in KINDS:
        for number, name in enumerate((PACKAGES[kind], LONG, "ab")):
            folder = f"plugins/{kind}-{number}"  # our rules know packages there
            arguments = ("new-plugin", kind, name, "--output", folder)
            assert bertlab(*arguments)[0] == 0
    ours = f"--config {OUR_RULES} --extend-ignore PLC0415"  # hooks import torch late
    for command in ("format --diff", "check", f"check {ours}"):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command.split(), "--no-cache", "."],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(900)  # where nobody checked bertlab before, mypy reads torch anew
def test_code_has_nothing_for_mypy(bertlab: Command, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for kind in KINDS:
        assert bertlab("new-plugin", kind, PACKAGES[kind])[0] == 0
    folders = [str(folder / folder.name.replace("-", "_")) for folder in tmp_path.iterdir()]
    ours = ["--config-file", str(OUR_RULES), "--cache-dir", str(OUR_RULES.parent / ".mypy_cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *ours, *folders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> PluginEnvironment:
    """An environment with a new plugin of each kind, written and installed by command."""
    environment = PluginEnvironment.create(tmp_path_factory.mktemp("new-plugins"))
    folder = environment.folder.parent
    for kind, package in PACKAGES.items():
        assert main(["new-plugin", kind, package, "--output", str(folder / package)]) == 0
    installs = " ".join(f"-e {package}" for package in PACKAGES.values())
    environment.expect(f"pip install {installs}", folder)
    return environment


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        # the next test runs each of them
        "-k 'not works_in_a_run and not run_goes_on_without_its_config and not events_are_taken'",
        pytest.param("", marks=pytest.mark.nightly),
    ],
    ids=["without runs", "all"],
)
def test_their_tests_pass_at_once(environment: PluginEnvironment, chosen: str) -> None:
    folders = " ".join(PACKAGES.values())
    printed = environment.expect(f"pytest {folders} {chosen}", environment.folder.parent)
    assert re.search(r"\d+ passed", printed)
    assert "warning" not in printed


@pytest.mark.nightly
def test_their_configs_run(environment: PluginEnvironment) -> None:
    """All in one process, which imports torch and Lightning once."""
    folder = environment.folder.parent
    few = "--trainer.max_steps 4 --trainer.val_check_interval 2 --trainer.log_every_n_steps 1"
    commands = ["tokenizer --corpus python-english --vocab_size 2000 --output vocabulary"]
    trained = {kind: package for kind, package in PACKAGES.items() if kind not in USES}
    commands += [f"fit --config {each}/configs/{each}.yaml {few}" for each in trained.values()]
    commands += ["my_command commands.py", "export runs/my-hooks exported --format my_exporter"]
    (folder / "commands.py").write_text(
        "from bertlab.cli.main import main\n"
        f"for command in {commands!r}:\n"
        "    assert main(command.split()) == 0, command\n"
    )
    environment.expect("python commands.py", folder)
    assert (folder / "exported/weights.npz").is_file()
    for kind, package in trained.items():
        (metrics,) = (folder / "runs").glob(f"*{package}/csv/**/metrics.csv")
        logged = metrics.read_text().split("\n")[0]
        shown = {
            "hooks": "gradient_norm",
            "metric": "my_metric",
            "evaluation": "val/my_evaluation/accuracy",
            "objective": "val/my_objective/loss",
        }
        assert shown.get(kind, "train/loss") in logged
