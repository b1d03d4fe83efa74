"""What ``benchmarks/attacks.py`` has found: a test for each kind of fault, and some attacks."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
import torch

from bertlab import load
from bertlab.checkpoints.run_checkpoint import RUN_KEY
from bertlab.checkpoints.run_directory import check_nothing_leads_out
from bertlab.data.corpus.corpus import Corpus, read_documents
from bertlab.data.corpus.store import StoreReport
from bertlab.errors import CheckpointError, CorpusError, DataError, OutputError
from bertlab.files import make_folder, new_folder, write_json
from bertlab_pages.escaping import html_templates
from bertlab_tasks.arrow_rows import read_arrow
from bertlab_tasks.data_sets import read_saved
from tests.conftest import Command
from tests.data.web_server import serving
from tests.test_house import MODULES, OF_PACKAGES, ROOT

URL = "https://me:c4n4ry@host/run"


def test_a_url_is_no_place_to_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_config: Path, bertlab: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in (Path(URL), Path("zip://x::s3://a/b"), Path("jdbc:x://h/y")):
        with pytest.raises(OutputError, match=r"is a URL; expected a path"):
            make_folder(place)
        with pytest.raises(OutputError, match=r"is a URL"), new_folder(place):
            pass
        with pytest.raises(OutputError, match=r"is a URL"):
            check_nothing_leads_out(place)
    code, printed, told = bertlab("fit", "--config", tiny_config, "--run_dir", URL)
    assert code == 2
    assert "c4n4ry" not in printed + told
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made_in_one_place() -> None:
    """By :func:`bertlab.files.make_folder`, which takes no URL; below a folder that is there."""
    for path in (*MODULES, *OF_PACKAGES):
        code = path.read_text("utf-8")
        tree = ast.parse(code if "parents=" in code else "")  # most modules make no folder
        made = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and getattr(node.func, "attr", "") in ("mkdir", "makedirs")
            and any(each.arg == "parents" for each in node.keywords)
        ]
        assert len(made) == (path == ROOT / "bertlab" / "files.py"), f"{path}:{made}"


@pytest.mark.parametrize(
    ("key", "value"),
    [("learning_rate", "fast"), ("warmup_steps", [1]), ("schedule", {"name": "linear", "a": 1})],
)
def test_values_of_a_stored_config_are_of_no_type_yet(
    key: str, value: object, tiny_run: Path, tmp_path: Path
) -> None:
    content = torch.load(tiny_run / "checkpoints" / "last.ckpt", weights_only=True)
    content[RUN_KEY]["config"]["model"]["optimizer"][key] = value
    torch.save(content, tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match=r"a\.ckpt: no .* can be made of its config"):
        load(tmp_path / "a.ckpt")


@pytest.mark.parametrize(
    ("figure", "value"),
    [("tokens_per_word", "1.2"), ("bytes_of_text", 10**900), ("document_length_quantiles", [1])],
)
def test_figures_of_a_report_are_of_its_kinds(figure: str, value: object, tmp_path: Path) -> None:
    whole = dict.fromkeys(StoreReport.__dataclass_fields__, 2)
    whole |= {"document_length_quantiles": {"5 %": 1}, "commonest_unknown": ["a"]}
    write_json(tmp_path / "report.json", whole)
    assert StoreReport.read(tmp_path).tokens == 2
    write_json(tmp_path / "report.json", {**whole, figure: value})
    with pytest.raises(CorpusError, match=r"report\.json: found no data report"):
        StoreReport.read(tmp_path)


@pytest.mark.parametrize("ending", ["zip", "xz", "gz"])
def test_a_packed_table_that_is_damaged(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"rows.parquet.{ending}"
    file.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(DataError, match=rf"rows\.parquet\.{ending}: not a readable Parquet file"):
        list(read_arrow(str(file), "parquet").rows)


def test_a_device_in_a_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A text.\n")
    (tmp_path / "b.txt").symlink_to("/dev/zero")
    with pytest.raises(CorpusError, match=r"b\.txt: neither a file nor a folder"):
        list(read_documents(Corpus([str(tmp_path)], format="sentences")))


def test_an_evaluation_that_is_refused_leaves_no_folder(
    tmp_path: Path, tiny_run: Path, bertlab: Command
) -> None:
    (tmp_path / "text.txt").write_text("A text.\n")
    given = ("--evaluation", "probing", "--data", tmp_path / "text.txt")
    code, _, told = bertlab(
        "evaluate", "--ckpt_path", tiny_run, *given, "--output", tmp_path / "out"
    )
    assert code == 2, told
    assert not (tmp_path / "out").exists()


def damaged_arrow(whole: bytes) -> bytes:
    """Return an Arrow file in which the end of a text lies far outside of the file."""
    ends = b"".join(n.to_bytes(4, "little") for n in (0, 3, 6))  # of "abc", "def"
    assert whole.count(ends) == 1
    return whole.replace(ends, ends[:4] + (2**31 - 9).to_bytes(4, "little") + ends[8:])


def test_texts_that_lie_outside_of_an_arrow_file(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": ["abc", "def"]}).save_to_disk(str(tmp_path / "saved"))
    (file,) = (tmp_path / "saved").glob("*.arrow")
    file.write_bytes(damaged_arrow(file.read_bytes()))
    with pytest.raises(DataError, match=r"saved/data-\S+\.arrow: not a readable Arrow file"):
        list(read_saved(tmp_path / "saved", None).rows)
    file = tmp_path / "a.arrow"
    table = pa.table({"text": ["abc", "def"]})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    file.write_bytes(damaged_arrow(file.read_bytes()))
    with pytest.raises(DataError, match=r"a\.arrow: not a readable Arrow file"):
        list(read_arrow(str(file), "arrow").rows)


@pytest.mark.slow
def test_pages_and_parts_of_a_corpus_have_no_secrets(
    tmp_path: Path, corpus_file: Path, bertlab: Command
) -> None:
    page = html_templates("bertlab_pages").from_string("<b>{{ source }}</b>")
    assert page.render(source=URL) == "<b>https://***@host/run</b>"
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "text.txt").write_bytes(corpus_file.read_bytes())
    with serving(tmp_path / "web") as address:
        url = f"{address.replace('://', '://me:c4n4ry@')}/text.txt#token=c4n4ry"
        given = ["--corpus", url, "--corpus_format", "sentences", "--words", "40"]
        code, _, told = bertlab("take-words", *given, "--output", tmp_path / "out")
        assert code == 0, told
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) == 2
    assert not any(b"c4n4ry" in path.read_bytes() for path in written)


@pytest.mark.nightly
def test_attacks_of_each_kind() -> None:
    command = [sys.executable, "benchmarks/attacks.py", "--seeds", "0:63"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
