"""Passwords and signatures in URLs: nothing that is printed or written has them."""

from pathlib import Path

import pytest

from bertlab.errors import without_secrets
from tests.conftest import Command
from tests.data.web_server import serving

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@host/a.txt", "https://***@host/a.txt"),
        ("https://token@host:8080/a", "https://***@host:8080/a"),
        (
            "s3://b/a?X-Amz-Signature=abc&X-Amz-Date=1",
            "s3://b/a?X-Amz-Signature=***&X-Amz-Date=***",
        ),
        ("https://h/a?raw=1&sig=b%2Fc#token=d", "https://h/a?raw=1&sig=***#token=***"),
        ("https://h/a?revision=main", "https://h/a?revision=main"),
        ("see 'https://h/a?k=v', or mail me@host", "see 'https://h/a?k=***', or mail me@host"),
        ("no address: a?b=c", "no address: a?b=c"),
        ("http:/me:pw@host/a: no such file", "http:/***@host/a: no such file"),  # of a Path
        ("jdbc:x:/me:pw@host/a", "jdbc:x:/***@host/a"),
        ("zip:/x::http:/me:pw@host/a?k=v", "zip:/x::http:/***@host/a?k=***"),
        ("C:/me@home/a?b=c", "C:/me@home/a?b=c"),
    ],
)
def test_what_a_url_may_hide_is_left_out(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
    assert without_secrets({url: [url, 1, None]}) == {shown: [shown, 1, None]}


def test_no_byte_of_a_run_has_a_secret(
    tmp_path: Path, corpus_file: Path, tiny_config: Path, bertlab: Command
) -> None:
    there = tmp_path / "web"
    there.mkdir()
    (there / "text.txt").write_bytes(corpus_file.read_bytes())
    run = tmp_path / "run"
    with serving(there) as address:
        url = f"{address.replace('://', f'://me:{CANARY}@')}/text.txt?sig={CANARY}"
        given = ["fit", "--config", tiny_config, "--data.corpus"]
        code, printed, told = bertlab(*given, url, "--run_dir", run)
        assert code == 0, told
        gone = url.replace("text.txt", "gone.txt")
        code, refused, why = bertlab(*given, gone, "--run_dir", tmp_path / "other")
        assert code == 2
        assert "gone.txt" in why
        _, resumed, said = bertlab("fit", "--ckpt_path", run, "--data.corpus", url)
    for text in (printed, told, refused, why, resumed, said):
        assert CANARY not in text
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert run / "manifest.json" in written
    assert [path for path in written if CANARY.encode() in path.read_bytes()] == []
    assert "***@127.0.0.1" in (run / "config.yaml").read_text("utf-8")
