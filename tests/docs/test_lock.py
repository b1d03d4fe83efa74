"""``pylock.toml``, which ``bash .ci/lock`` writes: what is installed, with its hashes."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from bertlab.plugins.index import FIRST_PARTY

ROOT = Path(__file__).parents[2]
LOCK: dict[str, Any] = tomllib.loads((ROOT / "pylock.toml").read_text("utf-8"))
LOCKED = {each["name"]: each for each in LOCK["packages"]}


def pinned() -> dict[str, str]:
    """Return the version of each package of ``constraints.txt``."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    found = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, _, version in found}


def dependencies() -> Iterator[Requirement]:
    """Yield what the core and the first-party packages ask for."""
    packages = FIRST_PARTY - {"bertlab-core"}
    for folder in (ROOT, *(ROOT / "plugins" / each for each in packages)):
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        yield from map(Requirement, project["dependencies"])


def test_all_that_is_needed_is_there() -> None:
    for each in dependencies():
        found = LOCKED[canonicalize_name(each.name)]
        assert "directory" in found or Version(found["version"]) in each.specifier


def test_our_own_packages_are_those_of_the_clone() -> None:
    own = {name for name, each in LOCKED.items() if "directory" in each}
    assert own == FIRST_PARTY
    for name in own:
        assert (ROOT / LOCKED[name]["directory"]["path"] / "pyproject.toml").is_file()


def test_versions_are_those_that_ci_tests() -> None:
    # of other platforms, such as tzdata, only a lock has versions
    known = pinned()
    found = {name: each["version"] for name, each in LOCKED.items() if name in known}
    assert len(found) > 50
    assert found == {name: known[name] for name in found}


def test_every_file_has_a_hash_and_comes_from_pypi() -> None:
    for name, each in LOCKED.items():
        files = [*each.get("wheels", ()), *([each["sdist"]] if "sdist" in each else ())]
        assert bool(files) != ("directory" in each), name
        for file in files:
            assert re.fullmatch(r"[0-9a-f]{64}", file["hashes"]["sha256"])
            assert file["url"].startswith("https://files.pythonhosted.org/")


def test_ci_writes_the_lock_with_the_same_uv_and_compares() -> None:
    said = re.search(r"uv==[\d.]+", (ROOT / ".ci" / "lock").read_text("utf-8"))
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]
    lines = [step.get("run", "") for step in jobs["lint"]["steps"]]
    assert said is not None
    assert f"pip install {said[0]} && bash .ci/lock && git diff --exit-code pylock.toml" in lines


def test_a_release_is_attested_with_what_is_in_it() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]
    assert jobs["build"]["permissions"]["attestations"] == "write"
    used = [step.get("uses", "").partition("@")[0] for step in jobs["build"]["steps"]]
    assert "actions/attest-build-provenance" in used
    assert "actions/attest-sbom" in used
