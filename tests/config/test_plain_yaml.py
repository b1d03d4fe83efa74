"""YAML within bounds: what a few lines may stand for, and what is no plain value."""

import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bertlab.config.yaml_files import load_argument, load_yaml


def multiplied(first: str, between: str) -> str:
    """Return a document of eleven lines that stands for 10 ** 11 values."""
    lines = [f"a0: &a0 {first}"]
    for number in range(1, 12):
        uses = ",".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} {between.replace('USES', uses)}")
    return "\n".join(lines)


BOMBS = [
    (multiplied("[x, x]", "[USES]"), "stands for over"),
    (multiplied("{x: 1}", "{<<: [USES]}"), "stands for over"),
    ("a: &a [*a]", "holds itself"),
    ("&a {b: {c: *a}}", "holds itself"),
    ("[" * 10**5, "brackets in each other"),
    ("{a: " * 10**5, "brackets in each other"),
    ("- " * 10**4 + "a", "nested"),
    ("[[]," * 10**5, "brackets in each other"),
    ("x: " + "9" * 5000, "a number of 5000 characters"),
    ("x: 0x" + "f" * 30, "over 64 bits"),
    ("x: 18446744073709551616", "over 64 bits"),
    ("x: " + ":".join(["9"] * 30), "over 64 bits"),
    ("batch_size: 010", "010 is 8 in YAML; write that, or put it in quotes"),
    ("max_time: 1:00:00:00", "1:00:00:00 is 216000 in YAML"),
    ("x: -1:30.5", "-1:30.5 is -90.5 in YAML"),
    ("x" * 2**21, "characters, expected at most"),
    ('x: "a\\0b"', "NUL"),
    ("x: !!bool no such", "is no such value"),
    ("a: 1\na: 2", "'a' is given twice"),
]


@pytest.mark.parametrize(("text", "reason"), BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_refused_before_it_is_built(text: str, reason: str) -> None:
    start = time.process_time()
    with pytest.raises(yaml.YAMLError, match=reason):
        load_yaml(text)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("tag", ["set", "binary", "omap", "pairs", "python/name:os.system"])
def test_only_plain_values_have_tags(tag: str) -> None:
    with pytest.raises(yaml.YAMLError, match="could not determine a constructor"):
        load_yaml(f"x: !!{tag} ''")


def test_plain_documents_mean_what_they_did() -> None:
    text = "a: &b {c: [1, 2.5, true, null, text, -3]}\nd: *b\ne: {<<: *b, f: 18446744073709551615}"
    assert load_yaml(text) == yaml.safe_load(text)
    assert load_yaml("[00, 007, 0.5, '010', 00:08:30:00]") == [0, 7, 0.5, "010", "00:08:30:00"]
    assert load_yaml("x: 2026-11-25") == {"x": "2026-11-25"}
    assert load_yaml("") is None


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.slow
@given(PLAIN)
def test_what_is_dumped_is_read_back(value: Any) -> None:
    assert load_yaml(yaml.safe_dump(value)) == value


@given(st.text(alphabet="&*a[]{}:,-?!|>'\"#% \n0x_.~<", max_size=60))
def test_whatever_is_read_is_plain_or_refused(text: str) -> None:
    try:
        found = load_yaml(text)
    except yaml.YAMLError:
        return
    assert isinstance(found, str | int | float | bool | list | dict | None)


@pytest.mark.parametrize("text", ["!!map x", "!!seq x", "!!timestamp [a]", "[!!map x]"])
def test_a_tag_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_argument(text)
