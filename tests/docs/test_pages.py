"""Links, files, modules and commands that README and docs name exist; README's Python works."""

import importlib
import re
import runpy
from pathlib import Path

import pytest

import bertlab
from bertlab.cli.main import command_names

ROOT = Path(__file__).parents[2]
SITE = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pages
def test_links(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pages
def test_files(page: Path) -> None:
    named = r"(?<![\w/.-])((?:bertlab|tests|configs|benchmarks|docs)/[\w./*-]*[\w/])"
    for file in re.findall(named, page.read_text("utf-8")):
        # the tutorial makes a package with files of its own, and Sphinx the site
        if page.name != "plugin-tutorial.md" and "_build" not in file:
            assert list(ROOT.glob(file.replace("NAME", "*"))), file


def test_modules_in_the_text_of_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert len(text.split()) <= 2500
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py|[a-z_]+(?:/[a-z_]+)+)`", text)
    assert len(named) > 15
    for file in named:
        assert (ROOT / "bertlab" / file).exists() or (ROOT / file).exists(), file


@pages
def test_modules(page: Path) -> None:
    for name in re.findall(r"(?:from|import) (bertlab(?:\.\w+)+)", page.read_text("utf-8")):
        importlib.import_module(name)


@pages
def test_subcommands(page: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    for command in re.findall(r"^(?:\S*/)?bertlab ([a-z][a-z-]+)", "\n".join(blocks), re.MULTILINE):
        assert command in command_names() or page.name == "plugin-tutorial.md", command


def python_of_readme() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", PAGES[0].read_text("utf-8"), re.DOTALL)
    return str(block)


def test_readme_names_the_public_face() -> None:
    code = python_of_readme()
    for name in re.findall(r"bertlab\.(\w+)", code):
        assert hasattr(bertlab, name), name
    for kind, made in (("Run", "run"), ("PretrainedModel", "model"), ("Study", "study")):
        for name in re.findall(rf"\b{made}\.(\w+)\(", code):
            assert hasattr(getattr(bertlab, kind), name), (kind, name)


@pytest.mark.slow
def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = python_of_readme().partition("study =")[0]
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    short = code.replace('{"trainer.max_steps": 500}', '{"trainer.max_steps": 2}')
    assert short != code
    (tmp_path / "readme.py").write_text(short)
    made = runpy.run_path("readme.py")
    assert set(made["model"].tasks) == {"mlm", "nsp"}
    assert (tmp_path / "my-bert" / "config.json").is_file()
