"""Uploads of exports, to a hub that only writes down what it is asked."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from bertlab.errors import OutputError
from bertlab.training.run import Run
from bertlab_pages.hub import Repository
from tests.conftest import Command

Calls = list[tuple[str, str, dict[str, Any]]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What was asked of the hub, in order, with the files of each folder at that time."""
    calls: Calls = []

    class Hub:
        def create_repo(self, name: str, **options: Any) -> None:
            calls.append(("create_repo", name, options))

        def create_branch(self, name: str, **options: Any) -> None:
            calls.append(("create_branch", name, options))

        def upload_folder(self, repo_id: str, folder_path: Path, **options: Any) -> Any:
            found = {each.name: each for each in Path(folder_path).iterdir()}
            calls.append(("upload_folder", repo_id, {**options, "files": found}))
            return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    return calls


def test_an_export_is_pushed(tiny_run: Path, tmp_path: Path, hub: Calls, bertlab: Command) -> None:
    arguments = ("export", tiny_run, tmp_path / "out", "--push", "me/tiny", "--private", "true")
    code, printed, error = bertlab(*arguments)
    assert code == 0, error
    assert printed.splitlines()[-1] == "pushed: https://hub/me/tiny/commit/1"
    assert [(what, name) for what, name, _ in hub] == [
        ("create_repo", "me/tiny"), ("upload_folder", "me/tiny"),
    ]  # fmt: skip
    assert hub[0][2] == {"private": True, "exist_ok": True}
    assert {"README.md", "config.json", "model.safetensors"} < hub[1][2]["files"].keys()
    assert hub[1][2]["revision"] is None
    assert 'from_pretrained("me/tiny")' in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow
def test_each_checkpoint_after_words_is_a_branch(
    tiny_run: Path, tmp_path: Path, hub: Calls, bertlab: Command
) -> None:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    for name in ("words-1M", "words-10M"):
        shutil.copy(tiny_run / "checkpoints" / "last.ckpt", folder / f"{name}.ckpt")
    arguments = ("export", tmp_path / "run", tmp_path / "out", "--words_checkpoints", "true")
    code, _, error = bertlab(*arguments, "--push", "me/tiny")
    assert code == 0, error
    branches = [options["branch"] for what, _, options in hub if what == "create_branch"]
    uploads = [options for what, _, options in hub if what == "upload_folder"]
    assert branches == [each["revision"] for each in uploads] == ["chck_1M", "chck_10M"]
    for upload in uploads:
        card = upload["files"]["README.md"].read_text()
        assert card.count(f'("me/tiny", revision="{upload["revision"]}")') == 3


def test_a_run_is_pushed_from_python(tiny_run: Path, tmp_path: Path, hub: Calls) -> None:
    Run(tiny_run).export(tmp_path / "out", repository="me/tiny")
    assert [what for what, _, _ in hub] == ["create_repo", "upload_folder"]


def test_offline_the_folder_stays_and_one_message_says_how_to_go_on(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    code, _, error = bertlab("export", tiny_run, tmp_path / "out", "--push", "me/tiny")
    assert code == 2
    assert error.count("\n") == 1
    assert error.startswith("bertlab: error E104")
    assert "offline mode" in error
    assert f"hf upload me/tiny {tmp_path / 'out'}" in error
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_what_the_hub_answers_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        error = RuntimeError("Bearer hf_secret \x1b[31m")
        error.response = SimpleNamespace(status_code=403)  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", refuse)
    with pytest.raises(OutputError, match="status 403: your account may not write") as found:
        Repository("me/tiny").push(tmp_path)
    assert "hf_secret" not in str(found.value)


@pytest.mark.parametrize("name", ["a/b/c", "../x", "", "me/", "-x", "tiny"])
def test_a_name_that_the_hub_cannot_have_is_refused_before_anything_is_written(
    tiny_run: Path, tmp_path: Path, hub: Calls, bertlab: Command, name: str
) -> None:
    code, _, error = bertlab("export", tiny_run, tmp_path / "out", f"--push={name}")
    assert code == 2
    assert "--push" in error
    assert not (tmp_path / "out").exists()
    assert not hub
