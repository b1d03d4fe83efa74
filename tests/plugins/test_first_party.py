"""The packages that are released with the core: one version, and one list of them everywhere."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import bertlab
from bertlab.api import CONTRACT
from bertlab.plugins.hooks import package_keys
from bertlab.plugins.index import (
    FIRST_PARTY,
    GROUPS,
    METAPACKAGE,
    OWN_PACKAGE,
    package_of,
    where_to_get,
)

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(FIRST_PARTY - {OWN_PACKAGE})


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return found


@pytest.mark.parametrize("package", [*PACKAGES, METAPACKAGE])
def test_it_has_the_version_of_the_core_and_asks_for_it(package: str) -> None:
    found = project(ROOT / "plugins" / package)
    assert found["name"] == package
    assert found["version"] == bertlab.__version__
    assert f"{OWN_PACKAGE}=={bertlab.__version__}" in found["dependencies"]
    first_party = [each for each in found["dependencies"] if each.startswith("bertlab")]
    assert all(each.endswith(f"=={bertlab.__version__}") for each in first_party)
    assert found["requires-python"] == project(ROOT)["requires-python"]


@pytest.mark.parametrize("package", PACKAGES)
def test_it_states_the_contract(package: str) -> None:
    entry_points = project(ROOT / "plugins" / package)["entry-points"]
    assert entry_points["bertlab.contract"] == {"contract": f"v{CONTRACT}"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_core_knows_what_it_brings(package: str) -> None:
    kinds = {group: kind for kind, group in GROUPS.items()}
    for group, entries in project(ROOT / "plugins" / package)["entry-points"].items():
        for name in entries if group in kinds else ():
            assert package_of(kinds[group], name) == package


def test_the_core_knows_keys_that_decide_what_is_computed() -> None:
    for key, said in package_keys().items():
        package = package_of("key", key)
        assert (package_of("decides", key) is not None) == (key in said.decides), key
        assert package_of("decides", key) in (None, package)


def test_the_metapackage_brings_all() -> None:
    version = bertlab.__version__
    wanted = {f"{each}=={version}" for each in FIRST_PARTY}
    assert set(project(ROOT / "plugins" / METAPACKAGE)["dependencies"]) == wanted


def test_the_first_command_installs_all() -> None:
    lines = (ROOT / "plugins/requirements.txt").read_text("utf-8").splitlines()
    assert lines == ["-e .", *(f"-e plugins/{each}" for each in PACKAGES)]


def test_what_is_missing_is_named_with_its_package() -> None:
    words = "; it comes with bertlab-studies: pip install bertlab-studies"
    assert where_to_get("command", "study") == words
    assert where_to_get("command", "stduy") == ""
