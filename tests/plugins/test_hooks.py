"""pluggy hooks: ours and strangers'; one that is broken is named and left out."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from jsonargparse import Namespace

from bertlab.api import ReportSection
from bertlab.api.batch import pack
from bertlab.cli.main import main
from bertlab.config.merge import read_request
from bertlab.config.parser import build_parser
from bertlab.config.run_config import parse_request
from bertlab.errors import ConfigError, PluginError, ResumeError
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from bertlab.training import cli
from bertlab_interop.export import push_to
from bertlab_studies.execute.schedule import Summary
from bertlab_studies.report.render import html, latex, markdown, print_report
from bertlab_studies.report.report import report_of
from bertlab_studies.study_command import run as run_study
from made_up_scores import made_up_study
from tests.conftest import Command
from tests.plugins.strange_packages import install, without

HEAD = "from bertlab.plugins.hooks import hookimpl\n"
PNG = "b'\\x89PNG\\r\\n\\x1a\\n and more'"
DOCS = Path(__file__).parents[2] / "docs" / "plugins.md"


@pytest.fixture(autouse=True)
def fresh_modules() -> Iterator[None]:
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    yield
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    for name in [name for name in sys.modules if name.endswith("_of_a_stranger")]:
        del sys.modules[name]


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on ``sys.path`` to install packages with hooks in."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def add_hooks(folder: Path, name: str, code: str, contract: str | None = None) -> None:
    module = f"{name}_of_a_stranger"
    groups = {"bertlab.hooks": {name: module}}
    if contract is not None:
        groups[plugins.CONTRACT_GROUP] = {"contract": contract}
    install(folder, name, groups, {module: code})


def defaults() -> Namespace:
    return build_parser("fit", read_request([])).get_defaults()


@pytest.mark.slow
def test_bertlab_callbacks_of_all_are_added(stranger: Path) -> None:
    code = (
        "from lightning.pytorch import Callback\n" + HEAD + "class Kind(Callback):\n    pass\n"
        "@hookimpl\ndef bertlab_callbacks(run_dir):\n    return [Kind()]\n"
    )
    add_hooks(stranger, "kind", code)
    names = {type(callback).__name__ for callback in hooks.run_callbacks(stranger, defaults())}
    assert {"Kind", "LossCurve"} <= names


SHINE = (
    "from bertlab import ConfigError, FitKeys\nfrom lightning.pytorch import Callback\n"
    + HEAD
    + """
class Shine(Callback):
    def __init__(self, config):
        self.config = config
    def prepare(self, trainer, data):
        if self.config.shine > 9:
            raise ConfigError(f"shine: found {self.config.shine}, expected up to 9")
        return {"shine": self.config.shine * trainer.max_steps}

@hookimpl
def bertlab_fit_arguments(parser):
    parser.add_argument("--shine", type=int, default=3, help="how bright")
    parser.add_argument("--lamp.place", type=str, default="here")
    parser.add_argument("--shade", type=str, default="none")
    parser.add_argument("--bulb.size", type=float, default=0.5)
    return FitKeys(("lamp",), stored=("shine",), not_in_stages={"shine": "a stage is dark"})

@hookimpl
def bertlab_callbacks(config):
    return [Shine(config)]
"""
)


@pytest.mark.slow
def test_bertlab_fit_arguments_are_keys_like_the_cores_own(
    stranger: Path, tiny_config: Path, bertlab: Command
) -> None:
    add_hooks(stranger, "bright", SHINE)
    run = stranger / "run"
    given = ("fit", "--config", tiny_config, "--run_dir", run)
    for wrong, words in {
        "--shine=x": "shine: found 'x', expected a whole number",
        "--shin=4": "did you mean 'shine'",
        "--shine=11": "shine: found 11, expected up to 9",
        "--stages={a: {share: 0.5}, b: {share: 0.5, shine: 2}}": "it does not go with stages",
        "--stages={a: {share: 0.5}, b: {share: 0.5, lamp.place: 2}}": "lamp.place: no such key",
        "--stages={a: {share: 0.5}, b: {share: 0.5}}": "beside stages: a stage is dark",
    }.items():
        code, _, error = bertlab(*given, wrong)
        assert code == 2
        assert words in error, error
        assert not run.exists()
    assert "how bright" in build_parser("fit", read_request([])).format_help()
    assert "shine: 4" in bertlab(*given, "--shine", 4, "--print_config")[1]
    code, _, error = bertlab(*given, "--shine", 4, "--lamp.place", "there")
    assert code == 0, error
    config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    assert config["shine"] == 4
    assert "lamp" not in config
    assert '"shine": 24' in (run / "manifest.json").read_text("utf-8")
    # a config of fit also serves the others
    code, _, error = bertlab("validate", "--ckpt_path", run, "--config", run / "config.yaml")
    assert code == 0, error


@pytest.mark.slow
def test_a_checkpoint_brings_values_of_the_keys_that_its_package_names_alone(
    stranger: Path, tiny_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "bright", SHINE)
    content = yaml.safe_load((tiny_run / "config.yaml").read_text("utf-8"))
    content |= {"shine": 5, "lamp": {"place": "/elsewhere"}, "run_dir": "/elsewhere"}
    file = tiny_run / "checkpoints" / "last.ckpt"
    values = parse_request(read_request([], content, str(file), file), "fit").values
    assert (values.shine, values.lamp.place, values.run_dir) == (5, "here", None)
    content["bulb"] = {"size": 0.25}
    with pytest.raises(ResumeError, match=r"its run has bulb\.size, .*--config .*config\.yaml"):
        parse_request(read_request([], content, str(file), file), "fit")
    content["bulb"] = {"size": 0.5}
    parse_request(read_request([], content, str(file), file), "fit")
    assert "does not know" not in capsys.readouterr().err
    content["shade"] = "/elsewhere"
    with pytest.raises(ResumeError, match=r"its run has shade, .*--config .*config\.yaml"):
        parse_request(read_request([], content, str(file), file), "fit")
    given = read_request(["--shade=mine"], content, str(file), file)
    assert parse_request(given, "fit").values.shade == "mine"
    content["shade"] = "none"
    assert parse_request(read_request([], content, str(file), file), "fit").values.shade == "none"


@pytest.mark.first_fast
@pytest.mark.parametrize("key", ["run_dir", "trainer.mine", "evaluations"])
def test_a_key_that_there_is_already_leaves_its_package_out(
    stranger: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = HEAD + "@hookimpl\ndef bertlab_fit_arguments(parser):\n    "
    add_hooks(stranger, "bold", f"{code}parser.add_argument('--{key}', type=int)\n")
    assert "bold" not in str(defaults())
    error = " ".join(capsys.readouterr().err.split())
    assert f"bertlab_fit_arguments is left out: ValueError: there is a key {key[:7]}" in error
    assert defaults().evaluations is None


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("package", "key", "value"),
    [
        ("bertlab-evaluations", "evaluations", "{x: {evaluation: minimal_pairs, data: y}}"),
        ("bertlab-evaluations", "evaluate_every", 3),
        ("bertlab-evaluations", "checkpoint_words", [1e3]),
        ("bertlab-guard", "check_every", 7),
        ("bertlab-studies", "seeds", 3),
        ("bertlab-studies", "against_scratch", "true"),
        ("bertlab-studies", "stages", "{a: {share: 0.5}, b: {share: 0.5}}"),
    ],
)
def test_a_key_of_a_package_that_is_not_installed_says_what_to_install(
    package: str,
    key: str,
    value: object,
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, package)
    words = f"{key}: comes with {package}: pip install {package}"
    run, file = tmp_path / "run", tmp_path / "more.yaml"
    given = ("fit", "--config", tiny_config, "--run_dir", run)
    file.write_text(f"{key}: {value}", "utf-8")
    code, _, error = bertlab(*given, f"--{key}", value)
    assert code == 2
    assert words in error
    code, _, error = bertlab(*given, "--config", file)
    assert code == 2
    assert f"{file}: {words}" in error
    stage = f"{{a: {{share: 0.5}}, b: {{share: 0.5, {key}: {value}}}}}"
    if package != "bertlab-studies":  # which has stages itself
        code, _, error = bertlab(*given, "--stages", stage)
        assert code == 2
        assert words in error
    assert not run.exists()


@pytest.mark.slow
def test_runs_go_on_without_the_packages_whose_keys_are_null(
    tiny_run: Path,
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = yaml.safe_load((tiny_run / "config.yaml").read_text("utf-8"))
    assert before["evaluations"] is before["checkpoint_words"] is None
    alone = tmp_path / "alone"
    with monkeypatch.context() as patch:
        without(patch, "bertlab-evaluations", "bertlab-guard")
        again = ("fit", "--ckpt_path", tiny_run / "checkpoints" / "step-3.ckpt")
        for more in ((), ("--config", tiny_run / "config.yaml")):
            code, _, error = bertlab(*again, *more, "--run_dir", tmp_path / f"again-{len(more)}")
            assert code == 0, error
        assert bertlab("fit", "--config", tiny_config, "--run_dir", alone)[0] == 0
        assert bertlab("validate", "--ckpt_path", tiny_run)[0] == 0
    assert "evaluations" not in yaml.safe_load((alone / "config.yaml").read_text("utf-8"))
    plugins.forget_installed()
    hooks.hook_modules.cache_clear()
    step = alone / "checkpoints" / "step-3.ckpt"
    code, _, error = bertlab("fit", "--ckpt_path", step, "--run_dir", tmp_path / "later")
    assert code == 0, error


def test_bertlab_opens_takes_over_what_its_keys_ask_for(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = HEAD + "class Sweep:\n    def run(self):\n        return 7\n"
    code += "@hookimpl\ndef bertlab_opens(command, request):\n"
    code += "    print([*request.argv])\n"
    code += "    return Sweep() if 'sweep' in request.values else None\n"
    add_hooks(stranger, "broad", code)
    assert main(["fit", "--sweep.x=[1, 2]"]) == 7
    assert capsys.readouterr().out == "['--sweep.x=[1, 2]']\n"
    assert main(["fit", "--swep=1"]) == 2


def test_what_bertlab_opens_raises_ends_the_command(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = HEAD + "@hookimpl\ndef bertlab_opens(command):\n    raise ValueError('too broad')\n"
    add_hooks(stranger, "broad", code)
    assert main(["fit", "quickstart"]) == 2
    assert "error E503: broad 1.0 raised an error at" in capsys.readouterr().err


@pytest.mark.slow
def test_bertlab_accelerate_finishes_each_batch_of_a_compiled_fit(
    stranger: Path, tiny_config: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layers are not compiled: that takes long, and comes after the hook."""
    code = HEAD + "SEEN = []\ndef see(batch):\n    SEEN.append(len(batch))\n    return batch\n"
    code += "@hookimpl\ndef bertlab_accelerate(module, data, trainer):\n"
    code += "    assert module.passes.shares and trainer.max_steps\n    data.finish_batch = see\n"
    add_hooks(stranger, "swift", code)
    for name in ("compile_layers", "compile_losses"):
        monkeypatch.setattr(cli, name, lambda part: None)
    for name, compiles in (("as it is", "false"), ("swift", "true")):
        given = ("fit", "--config", tiny_config, "--run_dir", stranger / name)
        assert bertlab(*given, "--compile", compiles)[0] == 0
    batches = sys.modules["swift_of_a_stranger"].SEEN
    assert batches
    results = [(stranger / name / "results.json").read_bytes() for name in ("as it is", "swift")]
    assert results[0] == results[1]


@pytest.mark.slow
def test_bertlab_step_parts_divides_a_step(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, bertlab: Command, tiny_config: Path
) -> None:
    auto = ("fit", "--config", tiny_config, "--trainer.accumulate_grad_batches", "auto")
    code = HEAD + "@hookimpl\ndef bertlab_step_parts(choose):\n    return 4 if choose else None\n"
    add_hooks(stranger, "quarters", code)
    without(monkeypatch, "bertlab-gpu")
    code, printed, error = bertlab(*auto, "--run_dir", stranger / "run")
    assert code == 0, error
    assert "in 4 parts" in printed
    monkeypatch.setattr(cli, "first_result", lambda hook, **given: None)
    code, _, error = bertlab(*auto, "--run_dir", stranger / "none")
    assert code == 2
    assert "found auto; it comes with bertlab-gpu: pip install bertlab-gpu" in error


@pytest.mark.slow
def test_bertlab_prediction_file_gets_each_row(
    stranger: Path, bertlab: Command, tiny_run: Path
) -> None:
    code = (
        HEAD
        + """
class Words:
    def __init__(self, path): self.path, self.rows = path, []
    def write(self, row): self.rows.append(row["text"])
    def close(self): self.path.write_text(" ".join(self.rows))
    def discard(self): pass
@hookimpl
def bertlab_prediction_file(path, form):
    return Words(path) if form == "words" else None
"""
    )
    add_hooks(stranger, "words", code)
    (stranger / "in.txt").write_text("the [MASK] is\nan [MASK]\n")
    given = ("--ckpt_path", tiny_run, "--input", stranger / "in.txt", "--output", stranger / "out")
    code, _, error = bertlab("predict", *given, "--output_format", "words")
    assert code == 0, error
    assert (stranger / "out").read_text() == "the [MASK] is an [MASK]"


@pytest.mark.slow
def test_bertlab_strategy_is_the_first_packages(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, bertlab: Command, tiny_config: Path
) -> None:
    code = HEAD + "from lightning.pytorch.strategies import SingleDeviceStrategy\n"
    code += "@hookimpl\ndef bertlab_strategy(name):\n"
    code += "    return SingleDeviceStrategy() if name == 'mine' else None\n"
    add_hooks(stranger, "divider", code)
    found = hooks.first_result("bertlab_strategy", name="mine")
    assert type(found).__name__ == "SingleDeviceStrategy"
    assert hooks.first_result("bertlab_strategy", name="ddp") is None
    without(monkeypatch, "bertlab-gpu")
    given = ("fit", "--config", tiny_config, "--run_dir", stranger / "run")
    code, _, error = bertlab(*given, "--trainer.strategy", "fsdp")
    assert (code, error) == (
        2,
        "bertlab: error E105: trainer.strategy: found 'fsdp'; it comes with bertlab-gpu: pip "
        "install bertlab-gpu\n",
    )


def test_bertlab_inspect_batch_sees_what_the_encoder_reads(stranger: Path) -> None:
    code = HEAD + "SEEN = []\n@hookimpl\ndef bertlab_inspect_batch(batch, stage, step):\n"
    code += "    SEEN.append((batch.input_ids.tolist(), stage, step))\n"
    add_hooks(stranger, "curious", code)
    assert hooks.is_hooked("bertlab_inspect_batch")
    batch = pack([[1, 2, 3]])
    hooks.hook_results("bertlab_inspect_batch", batch=batch, stage="train", step=5)
    seen = sys.modules["curious_of_a_stranger"].SEEN
    assert seen == [([1, 2, 3], "train", 5)]


def test_a_plugin_may_ask_for_some_arguments_only(stranger: Path) -> None:
    code = HEAD + "SEEN = []\n@hookimpl\ndef bertlab_inspect_batch(step):\n    SEEN.append(step)\n"
    add_hooks(stranger, "modest", code)
    batch = pack([[1]])
    hooks.hook_results("bertlab_inspect_batch", batch=batch, stage="train", step=5)
    assert sys.modules["modest_of_a_stranger"].SEEN == [5]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ImportError('no thanks')", "ImportError: no thanks"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        (HEAD + "@hookimpl\ndef bertlab_callback(run_dir): ...", "did you mean 'bertlab_callb"),
        (HEAD + "@hookimpl\ndef bertlab_callbacks(folder): ...", "Argument.*folder.*declared"),
        (HEAD + "@hookimpl\ndef bertlab_callbacks(run_dir): return 1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_broken_plugin_is_named_and_left_out(
    stranger: Path, code: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "rude", code)
    assert (
        len(hooks.run_callbacks(stranger, defaults()))
        == len(hooks.run_callbacks(stranger, defaults()))
        >= 3
    )
    error = " ".join(capfd.readouterr().err.split())
    assert error.count("is left out") == 1
    assert "bertlab: warning: hooks 'rude' of rude 1.0 (rude_of_a_stranger)" in error
    assert re.search(words, error)


def test_what_a_plugin_means_for_the_user_ends_the_command(stranger: Path) -> None:
    code = "from bertlab.errors import ConfigError\n" + HEAD
    code += "@hookimpl\ndef bertlab_callbacks(run_dir): raise ConfigError('set x')\n"
    add_hooks(stranger, "strict", code)
    with pytest.raises(ConfigError, match="set x"):
        hooks.run_callbacks(stranger, defaults())


def test_hooks_of_another_contract_are_left_out(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "old", "raise RuntimeError", contract="v1")
    hooks.hook_modules()
    assert "version 1 of the plugin contract" in capsys.readouterr().err


def test_what_hooks_print_on_import_is_kept_from_the_results(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "loud", "print('HELLO')")
    hooks.hook_modules()
    assert capsys.readouterr().out == ""


def test_bertlab_report_sections_are_in_every_form_of_a_report(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "from bertlab.api import ReportSection\n" + HEAD + "@hookimpl\n"
    code += "def bertlab_report_sections(scores):\n"
    code += "    return [ReportSection('Energy', ('kWh of ' + scores.name,), ('v', 'used'),"
    code += f" (('mlm', '7 & 8'),), {PNG})]\n"
    add_hooks(stranger, "frugal", code)
    report = report_of(made_up_study(name="small"))
    print_report(report)
    assert "kWh of small" in (printed := capsys.readouterr().out)
    assert "7 & 8" in printed
    assert "## Energy\n\nkWh of small\n\n| v | used |" in markdown(report)
    assert "<h2>Energy</h2>\n<p>kWh of small</p>" in html(report)
    assert r"7 \& 8" in latex(report)
    assert '<img src="data:image/png;base64,iVBOR' in html(report)
    assert "![Energy](section_1.png)" in markdown(report)
    assert "{section_1.png}" in latex(report)


RAISES = "from bertlab.errors import DataError\n" + HEAD + "@hookimpl\ndef {}: raise {}\n"


@pytest.mark.parametrize("error", ["ValueError('sorry')", "DataError('sorry')"])
def test_bertlab_run_ended_never_fails_a_run(
    stranger: Path, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "rude", RAISES.format("bertlab_run_ended(run_dir)", error))
    code = HEAD + "SEEN = []\n@hookimpl\ndef bertlab_run_ended(run_dir, results, tables):\n"
    add_hooks(stranger, "writer", code + "    SEEN.append((run_dir, results, tables))\n")
    without(monkeypatch := pytest.MonkeyPatch(), "bertlab-pages")
    given = {"run_dir": stranger, "results": {"mlm/loss": 1.0}, "tables": [("data", [("a", "2")])]}
    try:
        hooks.announce("bertlab_run_ended", **given)
    finally:
        monkeypatch.undo()
    assert [tuple(given.values())] == sys.modules["writer_of_a_stranger"].SEEN
    words = capsys.readouterr().err
    assert "hooks 'rude' of rude 1.0" in words
    assert "sorry" in words


EVENTS = (
    HEAD
    + """
from pathlib import Path
SEEN = []
@hookimpl
def bertlab_checkpoint_written(path, step):
    SEEN.append((path.name, step, path.stat().st_size > 0))
@hookimpl
def bertlab_run_written(run_dir):
    SEEN.append(sorted(each.name for each in run_dir.glob("results.json")))
    raise ValueError("no network")
"""
)


@pytest.fixture
def told_events(stranger: Path, tiny_config: Path, bertlab: Command) -> tuple[list[object], str]:
    """Return what hooks saw of a run in the folder ``run``, and what was printed of errors."""
    add_hooks(stranger, "courier", EVENTS)
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", stranger / "run")
    assert code == 0, error
    return sys.modules["courier_of_a_stranger"].SEEN, error


@pytest.mark.slow
def test_bertlab_checkpoint_written_is_told_of_whole_files(
    stranger: Path, told_events: tuple[list[tuple[str, int, bool]], str]
) -> None:
    *seen, _ = told_events[0]
    files = sorted(each.name for each in (stranger / "run/checkpoints").glob("*.ckpt"))
    assert {name for name, _, _ in seen} >= set(files)
    assert all(is_whole and step > 0 for _, step, is_whole in seen)


@pytest.mark.slow
def test_bertlab_run_written_comes_after_results_and_may_fail(
    told_events: tuple[list[object], str],
) -> None:
    seen, error = told_events
    assert seen[-1] == ["results.json"]
    assert "courier 1.0 (courier_of_a_stranger): bertlab_run_written is left out" in error


def test_without_hooks_takes_names_of_packages_that_have_some(
    stranger: Path, tiny_config: Path, bertlab: Command
) -> None:
    add_hooks(stranger, "bright", SHINE)
    given = ("fit", "--config", tiny_config, "--run_dir", stranger / "run", "--shine=4")
    code, _, error = bertlab(*given, "--without_hooks", "brights")
    assert code == 2
    assert "without_hooks: no package with hooks is called 'brights'; did you mean 'bri" in error
    code, _, error = bertlab(*given, "--without_hooks", "bright")
    assert code == 2
    assert "shine: no such key" in error


@pytest.mark.slow
def test_without_hooks_leaves_packages_out_and_the_manifest_names_them(
    stranger: Path, tiny_config: Path, bertlab: Command
) -> None:
    add_hooks(stranger, "courier", EVENTS)
    add_hooks(stranger, "bright", SHINE)
    given = ("fit", "--config", tiny_config, "--run_dir", stranger / "run")
    code, _, error = bertlab(*given, "--without_hooks", "[courier, bright]")
    assert code == 0, error
    assert sys.modules["courier_of_a_stranger"].SEEN == []
    manifest = json.loads((stranger / "run/manifest.json").read_text("utf-8"))
    assert manifest["hooks_left_out"] == {"courier": "1.0", "bright": "1.0"}
    assert "courier" not in manifest["plugins"]
    assert "without_hooks" not in (stranger / "run/config.yaml").read_text("utf-8")
    # the next command of the same process calls all again
    again = ("fit", "--config", tiny_config, "--run_dir", stranger / "again", "--shine=4")
    code, _, error = bertlab(*again)
    assert code == 0, error
    assert sys.modules["courier_of_a_stranger"].SEEN


@pytest.mark.slow
def test_bertlab_page_sections_are_on_the_page_of_a_run(
    stranger: Path, tiny_config: Path, bertlab: Command
) -> None:
    code = "from bertlab import ReportSection\n" + HEAD + "@hookimpl\n"
    code += "def bertlab_page_sections(run_dir, results):\n"
    code += "    return [ReportSection('Energy <b>', ('of ' + run_dir.name,), ('v', 'used'),"
    code += f" (('mlm', '7 & 8'),), {PNG})]\n"
    add_hooks(stranger, "frugal", code)
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", stranger / "run")
    assert code == 0, error
    page = (stranger / "run/run.html").read_text("utf-8")
    assert "<h2>Energy &lt;b&gt;</h2>\n<p>of run</p>" in page
    assert "7 &amp; 8" in page
    assert '<img src="data:image/png;base64,iVBOR' in page
    with pytest.raises(PluginError, match="expected a PNG"):
        ReportSection("x", picture=b"GIF89a")


def test_bertlab_study_ended_is_told_of_runs_and_report(stranger: Path) -> None:
    code = HEAD + "SEEN = []\n@hookimpl\n"
    code += "def bertlab_study_ended(study_dir, done, failed, files):\n"
    add_hooks(stranger, "courier", code + "    SEEN.append((study_dir, done, failed, files))\n")
    page = stranger / "report.html"
    study = SimpleNamespace(
        study_dir=stranger,
        run=lambda **options: Summary(done=["a"], failed={"b": "why"}, blocked={"c": "b"}),
        report=lambda **options: replace(report_of(made_up_study(name="small")), files=(page,)),
    )
    assert run_study(study) == 1
    seen = sys.modules["courier_of_a_stranger"].SEEN
    assert seen == [(stranger, ["a"], {"b": "why", "c": "b"}, (page,))]
    study.run = lambda **options: Summary(left=["a"], stopped_by=2)
    assert run_study(study) == 130
    assert len(seen) == 1


@pytest.mark.slow
def test_bertlab_prepare_tokenises_elsewhere(
    stranger: Path,
    corpus_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = HEAD + "import contextlib\ndef backwards(read, function):\n"
    code += "    yield from map(function, list(read()))\n    print('elsewhere')\n"
    code += "@hookimpl\ndef bertlab_prepare(parser, argv):\n"
    code += "    parser.add_argument('--there', type=bool)\n"
    code += "    return lambda options: contextlib.nullcontext(\n"
    code += "        backwards if options.pop('there') else None)\n"
    add_hooks(stranger, "away", code)
    without(monkeypatch, "bertlab-studies")
    folder = tmp_path / "tokenizer"
    assert main(["tokenizer", "--corpus", str(corpus_file), "--output", str(folder),
                 "--vocab_size", "300"]) == 0  # fmt: skip
    stores = {}
    given = (
        "--corpus",
        str(corpus_file),
        "--corpus_format",
        "sentences",
        "--tokenizer",
        str(folder),
    )
    for there in ("true", "false"):
        store = tmp_path / there
        assert main(["prepare", *given, "--output", str(store), "--there", there]) == 0
        assert ("elsewhere" in capsys.readouterr().out) == (there == "true")
        arrays = [each for each in sorted(store.iterdir()) if each.suffix == ".npy"]
        stores[there] = [each.read_bytes() for each in arrays]
    assert stores["true"] == stores["false"] != []


@pytest.mark.slow
def test_bertlab_export_files_adds_files(
    stranger: Path, tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = HEAD + "@hookimpl\ndef bertlab_export_files(folder, report, address):\n"
    code += "    (folder / 'note').write_text(f'{report.form} {address.name}')\n"
    add_hooks(stranger, "noting", code)
    assert main(["export", str(tiny_run), str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/note").read_text() == "transformers out"
    add_hooks(stranger, "strict", RAISES.format("bertlab_export_files(folder)", "DataError('no')"))
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    assert main(["export", str(tiny_run), str(tmp_path / "two")]) == 2
    assert "no" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()


def test_bertlab_push_is_the_first_packages(
    stranger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = HEAD + "@hookimpl\ndef bertlab_push(repository, private):\n"
    code += "    return lambda folder, branch: f'{repository} {private} {folder.name} {branch}'\n"
    add_hooks(stranger, "shelf", code)
    without(monkeypatch, "bertlab-pages")
    assert push_to("me/x", private=True)(stranger, "b") == f"me/x True {stranger.name} b"


def test_a_hook_is_known_where_the_package_that_calls_it_is_not_installed(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_hooks(stranger, "noting", HEAD + "@hookimpl\ndef bertlab_export_files(folder): pass\n")
    without(monkeypatch, "bertlab-interop")
    assert "noting" in str(hooks.hook_modules().manager.list_name_plugin())
    assert "left out" not in capsys.readouterr().err


SPEC = """
from bertlab import hookspec
@hookspec
def mine_counted(count): "Called with a count."
"""


def test_a_package_declares_hooks_that_others_have(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Strangers' hooks are declared as those of the packages that come with bertlab."""
    group = {hooks.SPECS: {"mine": "mine_specs"}}
    install(stranger, "mine", group, {"mine_specs": SPEC})
    clash = SPEC.replace("mine_counted(count)", "bertlab_inspect_batch(batch)")
    install(stranger, "clash", {hooks.SPECS: {"clash": "clash_specs"}}, {"clash_specs": clash})
    install(stranger, "bad", {hooks.SPECS: {"bad": "bad_specs"}}, {"bad_specs": "1 / 0"})
    code = HEAD + "@hookimpl\ndef mine_counted(count): return 2 * count\n"
    add_hooks(stranger, "other", code)
    assert list(hooks.hook_results("mine_counted", count=4)) == [8]
    told = capsys.readouterr().err
    assert "clash_specs is left out" in told
    assert "of bad 1.0 (bad_specs) is left out: ZeroDivisionError" in told
    batch = [hooks.hook_results("bertlab_inspect_batch", batch=None, stage="train", step=0)]
    assert batch == [[]]


def all_hooks() -> list[str]:
    found = [name for each in hooks.spec_modules() for name in vars(each)]
    return [name for name in found if name.startswith("bertlab_")]


@pytest.mark.parametrize("hook", all_hooks())
def test_every_hook_is_documented_and_tested(hook: str) -> None:
    assert f"`{hook}(" in DOCS.read_text("utf-8")
    tests = [*Path(__file__).parents[1].rglob("test_*.py")]
    assert any(f"def test_{hook}_" in path.read_text("utf-8") for path in tests)


@pytest.mark.parametrize("returned", ["3", "'x'", "object()", "[None]", "{1: 2}", "object"])
@pytest.mark.parametrize(
    "hook", sorted(hook for each in hooks.spec_modules() for hook in each.RETURNS)
)
def test_what_a_hook_may_not_return_ends_the_command(
    stranger: Path, hook: str, returned: str
) -> None:
    callables = {("bertlab_push", "object"), ("bertlab_prepare", "object")}
    if (hook, returned) in {("bertlab_step_parts", "3"), *callables}:
        return  # a number, and what can be called
    add_hooks(stranger, "odd", f"{HEAD}@hookimpl\ndef {hook}(): return {returned}\n")
    with pytest.raises(PluginError, match=f"of odd 1.0 .*: {hook} returned .*, expected"):
        hooks.hook_results(hook)
