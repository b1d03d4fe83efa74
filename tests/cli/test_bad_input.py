"""What users do wrong ends in one clear message, exit code 2, and nothing half-written."""

import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import Command
from tests.reliability.commands import contents

Refused = Callable[..., str]

# not refused yet, or too late, or by a poor message
PENDING = pytest.mark.xfail(strict=True, reason="has to be refused in the module concerned")


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bertlab: Command) -> Refused:
    """Run a command that must be refused; return the message."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BERTLAB_RUN_DIR", raising=False)

    def run(arguments: list[object], words: list[str], lines: int = 3) -> str:
        before = contents(tmp_path)
        code, _, error = bertlab(*arguments)
        assert code == 2, error
        assert "Traceback" not in error
        assert len(re.findall("bertlab: error E[1-6]0[1-9]: ", error)) == 1
        message = error[error.index("bertlab: error E") :]
        assert len(message.splitlines()) <= lines, message
        for word in words:
            assert word in message
        assert contents(tmp_path) == before
        return message

    return run


@pytest.fixture
def fit(refused: Refused, tiny_config: Path, tmp_path: Path) -> Refused:
    """Refuse ``fit`` on the tiny config with more arguments."""

    def run(arguments: list[object], words: list[str], lines: int = 3) -> str:
        command = ["fit", "--config", tiny_config, "--run_dir", tmp_path / "out"]
        return refused([*command, *arguments], words, lines)

    return run


@pytest.mark.parametrize("key", ["corpus", "lowercase", "vocab_size"])
def test_a_key_of_text_beside_a_head(refused: Refused, key: str) -> None:
    command = ["fit", "--model.head", "single_sentence", "--data.source", "rows.csv"]
    refused([*command, f"--data.{key}", 1], [f"data.{key}: is a key of text", "model.objectives"])


def test_the_tiny_config_itself_is_accepted(tiny_run: Path) -> None:
    assert (tiny_run / "results.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # keys
        ("--data.batchsize 8", ["data.batchsize", "did you mean 'data.batch_size'"]),
        ("--batch_size 8", ["batch_size", "did you mean 'data.batch_size'"]),
        ("--dta.corpus x", ["dta.corpus", "did you mean 'data.corpus'"]),
        ("--trainer.max_step 3", ["trainer.max_step:", "did you mean 'trainer.max_steps'"]),
        ("--model.optimizer.learningrate 1", ["did you mean 'model.optimizer.learning_rate'"]),
        ("--model.optimizer.lr 1", ["did you mean 'model.optimizer.learning_rate'"]),
        ("--model.optimizer.foo 1", ["model.optimizer.foo", "expected one of", "learning_rate"]),
        ("--model.objectives.mlm.rat 0.3", ["did you mean 'model.objectives.mlm.rate'"]),
        ("--model.objectives.sop.rate 0.3", ["model.objectives.sop.rate", "no such key"]),
        ("--model.encoder.vocab_size 300", ["model.encoder.vocab_size", "no such key"]),
        ("--data.corpus.sources x", ["data.corpus", "'sources' below it", "a text"]),
        ("--version", ["version: no such key; see --help"]),
        ("--max_steps 3", ["max_steps", "did you mean 'trainer.max_steps'"]),
        ("--objectives [mlm]", ["objectives", "did you mean 'model.objectives'"]),
        ("--objectives.nsp null", ["objectives.nsp", "did you mean 'model.objectives.nsp'"]),
        ("--seed 3", ["seed: found 3", "did you mean 'seed_everything'"]),
        ("--gpus 1", ["gpus", "did you mean 'trainer.devices'"]),
        ("--data.train a.csv", ["data.train", "expected model.head", "bertlab init"]),
        ("--trainer.learning_rate 1", ["did you mean 'model.optimizer.learning_rate'"]),
        ("--max_step 1", ["did you mean 'trainer.max_steps'"]),
        ("--max_token 1", ["did you mean 'max_tokens'"]),
        ("--run_dri x", ["did you mean 'run_dir'"]),
        ("--config_file x", ["did you mean 'config'"]),
        ("--model 3", ["model: found 3, expected keys below it", "'model.init_from'"]),
        ("--model+ 3", ["model: is a section", "--model.KEY VALUE"]),
        ("--data.batch_size", ["--data.batch_size: expected a value after it"]),
        ("--data.corpus a.txt b.txt", ["'b.txt'", "--KEY '[a, b]'"]),
        ("-x 3", ["'-x'", "--KEY VALUE"]),
        # types
        ("--data.batch_size abc", ["data.batch_size: found 'abc'", "a whole number or a mapping"]),
        ("--data.batch_size 1.5", ["data.batch_size: found 1.5", "a whole number"]),
        ("--data.batch_size=", ["data.batch_size: found ''", "a whole number"]),
        ("--model.optimizer.learning_rate fast", ["learning_rate: found 'fast'", "a number"]),
        ("--model.optimizer.betas [0.9]", ["betas: found [0.9]", "a list [number, number]"]),
        ("--model.encoder.causal maybe", ["causal: found 'maybe'", "expected true or false"]),
        ("--model.objectives.mlm.rate null", ["mlm.rate: found null", "expected a number"]),
        ("--seed_everything abc", ["seed_everything: found 'abc'", "a whole number"]),
        ("--trainer.max_steps abc", ["trainer.max_steps: found 'abc'", "a whole number"]),
        ("--data nope.yaml", ["data: found 'nope.yaml'", "expected keys below it"]),
        # choices
        ("--data.input_format full_sentence", ["'full_sentence'", "did you mean 'full_sentences'"]),
        ("--data.corpus_format sentence", ["'auto'", "did you mean 'sentences'"]),
        ("--data.errors ignore", ["data.errors: found 'ignore'", "'strict', 'replace'"]),
        ("--model.encoder.preset tinny", ["preset", "did you mean 'tiny'"]),
        ("--model.encoder.position_embedding rotary", ["'learned', 'sinusoidal'"]),
        ("--model.optimizer.schedule cosin", ["'cosin'", "did you mean 'cosine'"]),
        ("--model.objectives.mlm.unit wholeword", ["did you mean 'whole_word'"]),
        ("--trainer.precision bf17", ["trainer.precision", "did you mean 'bf16'"]),
        ("--trainer.callbacks+=EarlyStoping", ["'EarlyStoping'", "did you mean 'EarlyStopping'"]),
        (
            "--trainer.callbacks+=EarlyStopping",
            ["EarlyStopping needs monitor", "init_args: {monitor: …}"],
        ),
        ("--trainer.logger wandb", ["trainer.logger: wandb is not installed; pip install wandb"]),
        # ranges
        ("--data.batch_size 0", ["data.batch_size: found 0", "1 or more"]),
        ("--data.max_seq_length 2", ["max_seq_length", "2", "8 or more"]),
        ("--data.validation_fraction 2", ["data.validation_fraction: found 2", "0 and 1"]),
        ("--data.validation_fraction 0", ["validation_fraction", "0.0", "0 and 1"]),
        ("--data.short_sequence_probability 2", ["data.short_sequence_probability", "0 and 1"]),
        ("--data.vocab_size 3", ["vocab_size", "3", "32 or more"]),
        ("--model.optimizer.learning_rate -1", ["learning_rate", "-1", "above 0"]),
        ("--model.encoder.hidden_size 33", ["2 heads", "hidden_size 33"]),
        ("--model.objectives.mlm.rate 1.5", ["mlm", "rate", "1.5"]),
        ("--model.objectives.mlm.mask_share 0.5", ["mlm", "shares", "mask_share 0.5", "sum 0.7"]),
        # what does not go together
        ("--data.max_seq_length 128", ["found 128", "max_position_embeddings", "64"]),
        ("--data.input_format full_sentences", ["nsp", "'full_sentences'", "'segment_pairs'"]),
        ("--model.encoder.causal true", ["mlm", "bidirectional", "model.encoder.causal is true"]),
        ("--model.objectives [clm]", ["clm", "left-to-right", "model.encoder.causal is false"]),
        ("--data.batch_tokens 100", ["data.batch_size and data.batch_tokens"]),
        # plugins
        ("--model.objectives [mlm,nps]", ["'nps'", "did you mean 'nsp'", "installed: "]),
        ("--model.objectives mlm", ["model.objectives: found 'mlm'", "[mlm, nsp]"]),
        ("--model.objectives [mlm", ["model.objectives", "'[mlm'", "[mlm, nsp]"]),
        ("--model.encoder brt", ["model.encoder", "'brt'", "did you mean 'bert'"]),
        # corpus, tokenizer, places
        ("--data.corpus []", ["data.corpus: found none", "python-english"]),
        ("--data.corpus nope.txt", ["nope.txt: no such file"]),
        ("--data.tokenizer nope.txt", ["nope.txt: no such file", "vocab.txt"]),
        ("--model.init_from nope/nope", ["nope"]),
        ("--model.init_from hf:own/name", ["hf:own/name: is an address", "hub: own/name"]),
        (
            "--model.init_from https://huggingface.co/own/name",
            ["is an address, expected the model's name on the hub: own/name"],
        ),
        ("--trainer.devices 0", ["E105: trainer.devices: found '0', expected 1 ", ", or auto"]),
        ("--trainer.devices=cuda:0", ["trainer.devices: found 'cuda:0', expected 1 ", ", or auto"]),
        (
            "--trainer.accelerator cpu --trainer.devices=-1",
            ["trainer.devices: found '-1', expected 1 or more processes, or auto"],
        ),
        ("--trainer.val_check_interval 2.5", ["2.5", "val_check_interval"]),
        *(
            (f"--{key}={given}", [f"{key}: found {found}, expected a time such as {{hours: 8"])
            for key in ("trainer.max_time", "checkpoint.train_time_interval")
            for given, found in (
                *(("abc", "'abc'"), ("{hours:x}", "{'hours:x': None}"), ("300", "300")),
                *(("{seconds:0.5}", "{'seconds:0.5': None}"), ("0:00:00:00", "'0:00:00:00'")),
            )
        ),
        *(
            (f"--data.{key}=a", [f"data.{key}: only `predict` reads it; fit reads data.corpus"])
            for key in ("text", "text_pair", "input")
        ),
        ("--checkpoint.save_top_k -5", ["save_top_k=-5", ">= -1"]),
    ],
)
def test_an_argument_of_fit(fit: Refused, arguments: str, words: list[str]) -> None:
    fit(arguments.split(), words)


CHECKED_LATE = [
    ("--model.optimizer.betas [0.9,1.2]", ["model.optimizer.betas", "1.2"]),
    ("--model.encoder.hidden_size 0", ["model.encoder.hidden_size", "0", "1 or more"]),
    ("--model.encoder.hidden_dropout_prob 1.5", ["hidden_dropout_prob", "1.5"]),
    ("--model.objectives []", ["model.objectives", "[mlm, nsp]"]),
    ("--data.corpus=", ["data.corpus"]),
    ("--data.num_workers -1", ["data.num_workers", "-1"]),
    ("--data.prepare_workers 0", ["data.prepare_workers", "0"]),
    ("--seed_everything -3", ["seed_everything", "-3"]),
    ("--seed_everything false", ["seed_everything: found false", "a number, or true for any"]),
    ("--trainer.accelerator gpuu", ["trainer", "gpuu", "cpu"]),
    ("--trainer.strategy dpp", ["trainer", "dpp"]),
    ("--trainer.devices [a]", ["trainer", "devices"]),
    (
        "--trainer.accelerator cpu --trainer.devices=[0]",
        ["trainer.devices: found [0], expected 1 or more processes, or auto"],
    ),
    ("--trainer.val_check_interval 0", ["trainer.val_check_interval", "0"]),
    ("--trainer.accumulate_grad_batches 0", ["trainer.accumulate_grad_batches", "0"]),
    (
        "--trainer.accumulate_grad_batches 16 --trainer.val_check_interval 16",
        ["data.batch_size", "8", "16 accumulated"],
    ),
    ("--trainer.accumulate_grad_batches 2", ["trainer.val_check_interval", "3", "multiple"]),
    ("--trainer.max_steps -1", ["trainer.max_steps", "schedule"]),
    ("--checkpoint.monitor val/lss --checkpoint.save_top_k 1", ["checkpoint.monitor", "val/lss"]),
]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(("arguments", "words"), CHECKED_LATE)
def test_an_argument_of_fit_that_is_checked_late(
    fit: Refused, arguments: str, words: list[str]
) -> None:
    fit(arguments.split(), words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("batch_size: 8", "batchsize: 8", ["data.batchsize", "did you mean 'data.batch_size'"]),
        ("batch_size: 8", "batch_size: abc", ["data.batch_size: found 'abc'", "a whole number"]),
        ("batch_size: 8", "1: 8", ["data.1: no such key"]),
        ("corpus_format: sentences", "corpus: x", ["'corpus' is given twice", "line 9"]),
        ("corpus_format: sentences", "text: !!python/name:os.system x", ["python/name", "line 9"]),
        ("corpus_format: sentences", "text: !foo x", ["!foo", "line 9"]),
        ("max_steps: 6", "max_step: 6", ["trainer.max_step", "did you mean 'trainer.max_steps'"]),
        ("max_steps: 6", "max_time: [1]", ["max_time: found [1]", "a time such as {hours: 8"]),
        ("max_steps: 6", "max_time: {days: 1.0e+12}", ["max_time: found {'days': 100000"]),
        ("max_steps: 6", "max_time: {hour: 1}", ["max_time: found {'hour': 1}", "{hours: 8"]),
        ("max_steps: 6", "max_time: {seconds: 1.5}", ["max_time: found {'seconds': 1.5}"]),
        ("seed_everything: 3", "seed_everything: x", ["seed_everything: found 'x'"]),
        ("seed_everything: 3", "data: 3", ["'data' is given twice"]),
        ("seed_everything: 3", "seed_everthing: 3", ["did you mean 'seed_everything'"]),
        ("data: {", "dta: {", ["dta.corpus", "did you mean 'data.corpus'"]),
        ("data: {", "data: 3\nnot_data: {", ["data: found 3", "a mapping of keys to values"]),
        ("hidden_size: 32", "hiden_size: 32", ["did you mean 'model.encoder.hidden_size'"]),
        ("name: bert", "name: brt", ["model.encoder", "did you mean 'bert'"]),
        ("[mlm, nsp]", "[mlm, nps]", ["'nps'", "did you mean 'nsp'"]),
        ("[mlm, nsp]", "[mlm: {rat: 0.1}]", ["did you mean 'model.objectives.mlm.rate'"]),
        ("[mlm, nsp]", "[mlm: {rate: abc}]", ["mlm.rate: found 'abc'", "from, to, schedule"]),
        ("[mlm, nsp]", "[mlm: {rate: null}]", ["mlm.rate: found null", "a number"]),
        ("[mlm, nsp]", "[nsp: {x: 1}]", ["model.objectives.nsp.x: no such key"]),
        ("[mlm, nsp]", "{mlm: 3}", ["model.objectives", "'mlm': 3", "{mlm: {rate: 0.15}}"]),
        ("{learning_rate: 1.0e-3}", "adam", ["model.optimizer.name", "did you mean 'adamw'"]),
        ("{learning_rate: 1.0e-3}", "3", ["model.optimizer: found 3", "a mapping"]),
        ("learning_rate:", "schedule: 3, learning_rate:", ["schedule: found 3", "a mapping"]),
        ("learning_rate:", "name: 3, learning_rate:", ["model.optimizer.name: found 3"]),
        ("learning_rate:", "name: SGD, eps: 3, learning_rate:", ["optimizer.eps: no such key"]),
        (
            "learning_rate:",
            "schedule: {name: wsd, decay_share: 3}, learning_rate:",
            ["schedule.decay_share: found 3"],
        ),
        ("save_top_k", "save_topk", ["checkpoint.save_topk", "'checkpoint.save_top_k'"]),
        ("max_steps: 6", "callbacks: [{class_path: Nope}]", ["trainer.callbacks", "'Nope'"]),
        (
            "max_steps: 6",
            "callbacks: [{class_path: LearningRateMonitor, init_args: {loging_interval: step}}]",
            ["trainer.callbacks", "'loging_interval'", "did you mean 'logging_interval'"],
        ),
    ],
)
def test_a_key_of_a_config_file(
    refused: Refused, tiny_config: Path, tmp_path: Path, old: str, new: str, words: list[str]
) -> None:
    text = tiny_config.read_text("utf-8")
    assert old in text
    path = tmp_path / "config.yaml"
    path.write_text(text.replace(old, new, 1), "utf-8")
    refused(["fit", "--config", path, "--run_dir", tmp_path / "out"], words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["config.yaml: no such config file"]),
        (b"", ["data.corpus: found none"]),
        (b"data:\ntrainer:\n", ["data.corpus: found none"]),
        (b"just text", ["config.yaml: found text, expected a mapping"]),
        (b"- a\n- b", ["config.yaml: found list, expected a mapping"]),
        (b"a: [1", ["config.yaml: not valid YAML", "line 1"]),
        (b"data: \xff", ["config.yaml: invalid UTF-8 at byte 6"]),
        (b"model: 3", ["config.yaml: model: found 3, expected a mapping"]),
        (b"trainer: [1]", ["config.yaml: trainer: found [1], expected a mapping"]),
    ],
)
def test_a_config_file(
    refused: Refused, tmp_path: Path, content: bytes | None, words: list[str]
) -> None:
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    refused(["fit", "--config", path, "--run_dir", tmp_path / "out"], words)


def test_an_encoder_name_that_is_no_text(
    refused: Refused, tiny_config: Path, tmp_path: Path
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(tiny_config.read_text("utf-8").replace("name: bert", "name: [3]"), "utf-8")
    words = ["config.yaml", "model.encoder", "[3]"]
    refused(["fit", "--config", path, "--run_dir", tmp_path / "out"], words)


SENTENCE = "Some words make a line of text that is long enough.\n"
CORPORA = [
    (b"", ["holds no text"]),
    (b"\n  \n\n", ["holds no text"]),
    (
        (SENTENCE * 20).encode(),
        ["a single document", "blank lines", "data.corpus_format", "with lines each line"],
    ),
    ((SENTENCE + "\n").encode() * 20, ["exactly one sentence", "blank line"]),
    (SENTENCE.encode() * 2 + b"\n\xff" + SENTENCE.encode(), ["not UTF-8", "offset 105", "replace"]),
]


@pytest.mark.first_fast
@pytest.mark.parametrize(("content", "words"), CORPORA)
def test_a_corpus_of_fit(
    fit: Refused,
    cache_dir: Path,
    tiny_run: Path,
    tmp_path: Path,
    content: bytes,
    words: list[str],
) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    stores = set((cache_dir / "stores").glob("*"))
    message = fit(["--data.corpus", path, "--data.tokenizer", tiny_run / "tokenizer"], words)
    if "not UTF-8" in message or "no text" in message:
        assert "bad.txt" in message
    new = set((cache_dir / "stores").glob("*")) - stores
    # a corpus that has no pairs may serve other input formats
    assert "one sentence" in message or not [each for each in new if each.is_dir()]
    assert not list(cache_dir.rglob("*.partial"))


@pytest.mark.parametrize(("content", "words"), [*CORPORA[:3], *CORPORA[4:]])
def test_a_corpus_of_prepare(
    refused: Refused, tiny_run: Path, tmp_path: Path, content: bytes, words: list[str]
) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    tokenizer = ["--tokenizer", tiny_run / "tokenizer", "--corpus_format", "sentences"]
    refused(["prepare", "--corpus", path, *tokenizer, "--output", tmp_path / "out"], words)


@pytest.mark.slow
def test_invalid_utf8_can_be_replaced(
    bertlab: Command, tiny_config: Path, corpus_file: Path, tiny_run: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.txt"
    content = corpus_file.read_bytes()
    bad.write_bytes(content[:5000] + b"\xff" + content[5000:])
    run = ["--config", tiny_config, "--run_dir", tmp_path / "run", "--trainer.max_steps", 1]
    run += ["--trainer.val_check_interval", 1, "--data.corpus", bad]
    assert bertlab("fit", *run, "--data.errors", "replace")[0] == 0
    store = ["--tokenizer", tiny_run / "tokenizer", "--output", tmp_path / "store"]
    store += ["--corpus_format", "sentences", "--errors", "replace"]
    assert bertlab("prepare", "--corpus", bad, *store)[0] == 0
    vocabulary = ["--output", tmp_path / "vocabulary", "--vocab_size", 300, "--errors", "replace"]
    assert bertlab("tokenizer", "--corpus", bad, *vocabulary)[0] == 0


def test_a_misspelt_corpus_names_the_nearest(fit: Refused, tmp_path: Path) -> None:
    (tmp_path / "topics.txt").write_text("x\n")
    fit(["--data.corpus", tmp_path / "topcs.txt"], ["topcs.txt", "did you mean 'topics.txt'"])


def test_a_vocabulary_without_mask(fit: Refused, tiny_run: Path, tmp_path: Path) -> None:
    lines = (tiny_run / "tokenizer" / "vocab.txt").read_text("utf-8").splitlines()
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(line for line in lines if line != "[MASK]") + "\n", "utf-8")
    fit(["--data.tokenizer", path], ["vocab.txt", "no [MASK]"])


def test_a_damaged_tokenizer(fit: Refused, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    fit(["--data.tokenizer", tmp_path / "tokenizer.json"], ["tokenizer.json", "damaged JSON"])


@pytest.fixture
def other_tokenizer(bertlab: Command, corpus_file: Path, tmp_path: Path) -> Path:
    """A tokenizer of 250 tokens, where the tiny run has 300."""
    folder = tmp_path / "tokenizer250"
    code, _, error = bertlab(
        "tokenizer", "--corpus", corpus_file, "--vocab_size", 250, "--output", folder
    )
    assert code == 0, error
    return folder


@pytest.mark.slow
def test_a_warm_start_with_another_tokenizer(
    fit: Refused, tiny_run: Path, other_tokenizer: Path
) -> None:
    arguments = ["--model.init_from", tiny_run, "--data.tokenizer", other_tokenizer]
    fit(arguments, ["data.tokenizer", "tokenizer250", "last.ckpt", "leave data.tokenizer out"])


def test_tokenizer_and_encoder_of_different_sizes(
    fit: Refused, bertlab: Command, tiny_run: Path, other_tokenizer: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "huggingface"
    assert bertlab("export", tiny_run, folder)[0] == 0
    shutil.copytree(other_tokenizer, folder, dirs_exist_ok=True)
    fit(["--model.init_from", folder], ["250", "300", "tokenizer"])


def test_the_wrong_tokenizer_shows_in_unk(
    refused: Refused, fit: Refused, tiny_run: Path, tmp_path: Path
) -> None:
    document = "機械学習 の 文章 です\n日本語 テスト 文字\n" * 3
    path = tmp_path / "ja.txt"
    path.write_text("\n".join([document] * 10), "utf-8")
    tokenizer = tiny_run / "tokenizer"
    words = ["[UNK]", "tokenizer does not fit", "bertlab tokenizer"]
    fit(["--data.corpus", path, "--data.tokenizer", tokenizer], words)
    store = ["--corpus_format", "sentences", "--output", tmp_path / "out"]
    refused(["prepare", "--corpus", path, "--tokenizer", tokenizer, *store], words)


def test_a_checkpoint_of_another_shape_lists_the_tensors(fit: Refused, tiny_run: Path) -> None:
    arguments = ["--model.init_from", tiny_run, "--model.encoder.hidden_size", 64]
    words = [
        "last.ckpt",
        "36 tensors differ in shape",
        "encoder.token_embedding.weight: checkpoint (300, 32), model (300, 64)",
        "hidden_size: 32 (not 64)",
    ]
    fit(arguments, words, lines=24)


class Hostile:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("executed",)


def write_hostile(path: Path) -> None:
    torch.save({"state_dict": Hostile(), "bertlab": {}}, path)


def write_hostile_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"state_dict": Hostile(), "bertlab": {}}, protocol=2))


def write_unfinished(path: Path) -> None:
    torch.save({"state_dict": {}, "bertlab": {}, "global_step": 1}, path)


def write_foreign(path: Path) -> None:
    torch.save({"state_dict": {}}, path)


def write_text(path: Path) -> None:
    path.write_text("hello")


@pytest.mark.parametrize(
    ("write", "words"),
    [
        pytest.param(write_hostile, ["code"]),
        pytest.param(write_hostile_pickle, ["code"]),
        pytest.param(write_unfinished, ["config"]),
        (write_foreign, ["not a bertlab checkpoint"]),
        (write_text, ["checkpoint"]),
        pytest.param(Path.touch, ["empty"]),
    ],
)
def test_a_bad_checkpoint_is_refused_and_not_run(
    refused: Refused,
    fit: Refused,
    tmp_path: Path,
    write: Callable[[Path], None],
    words: list[str],
) -> None:
    path = tmp_path / "bad.ckpt"
    write(path)
    words = ["bad.ckpt", *words]
    message = refused(["validate", "--ckpt_path", path], words)
    assert "weights_only" not in message  # torch's advice is to run the code
    refused(["export", path, tmp_path / "out"], words)
    fit(["--model.init_from", path], words)


def test_a_truncated_checkpoint(refused: Refused, tiny_run: Path, tmp_path: Path) -> None:
    content = (tiny_run / "checkpoints" / "last.ckpt").read_bytes()
    for share in (0.02, 0.5, 0.999):
        (tmp_path / "cut.ckpt").write_bytes(content[: int(len(content) * share)])
        refused(["validate", "--ckpt_path", tmp_path / "cut.ckpt"], ["cut.ckpt", "checkpoint"])


@pytest.mark.parametrize("command", ["fit", "validate", "predict"])
def test_a_ckpt_path_to_nothing(refused: Refused, tmp_path: Path, command: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun" / "checkpoints").mkdir(parents=True)
    refused([command, "--ckpt_path", "nope"], ["--ckpt_path", "nope", "no such run"])
    refused([command, "--ckpt_path", "empty"], ["--ckpt_path", "empty"])
    refused([command, "--ckpt_path", "begun"], ["begun", "no checkpoint yet", "checkpoint.dirpath"])


@pytest.mark.slow
def test_a_checkpoint_of_another_model(refused: Refused, tiny_run: Path) -> None:
    arguments = ["validate", "--ckpt_path", tiny_run, "--model.objectives.nsp", "null"]
    refused(arguments, ["last.ckpt", "another model", "objectives.nsp"])


@pytest.mark.parametrize("command", ["validate", "predict"])
def test_new_weights_are_not_scored(refused: Refused, tiny_config: Path, command: str) -> None:
    text = ["--data.text", "a [MASK]"]
    refused([command, "--config", tiny_config, *text], ["--ckpt_path", "--model.init_from"])


@pytest.mark.slow
def test_a_run_directory_in_use_or_a_file(
    refused: Refused, tiny_config: Path, tiny_run: Path, tmp_path: Path
) -> None:
    before = contents(tiny_run)
    arguments = ["fit", "--config", tiny_config, "--run_dir"]
    refused([*arguments, tiny_run], ["already holds a run", f"--ckpt_path {tiny_run}"])
    assert contents(tiny_run) == before
    (tmp_path / "file").touch()
    refused([*arguments, tmp_path / "file"], ["run_dir", "is a file, expected a directory"])
    refused([*arguments, tmp_path / "file" / "below"], ["file/below", "ot a directory"])


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["data.text, data.input: found none"]),
        pytest.param(["--data.text", ""], ["data.text"]),
        (["--data.text_pair", "b"], ["data.text, data.input: found none"]),
        (["--data.text", "word " * 60], ["data.text", "tokens", "data.max_seq_length 32"]),
        (
            ["--data.text", "a", "--data.text", "b", "--data.text_pair", "c"],
            ["data.text_pair: found 1", "2"],
        ),
        (["--data.texts", "a"], ["data.texts", "did you mean 'data.text'"]),
        (["--data.text", "a [MASK]", "--output", "file/x"], ["--output", "file/x"]),
    ],
)
def test_predict(
    refused: Refused, tiny_run: Path, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    (tmp_path / "file").touch()
    refused(["predict", "--ckpt_path", tiny_run, *arguments], words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["missing: MODEL, OUTPUT"]),
        (["RUN"], ["missing: OUTPUT"]),
        (["RUN", "out", "more"], ["'more'"]),
        (["RUN", "full"], ["full", "not empty"]),
        (["RUN", "full/file"], ["full/file", "expected a folder"]),
        (["RUN", "full/file/below"], ["full/file", "cannot be written"]),
        (["RUN", "out", "--overwite", "true"], ["overwite", "did you mean 'overwrite'"]),
        (["RUN", "out", "--overwrite", "maybe"], ["overwrite: found 'maybe'", "true or false"]),
        (["nope", "out"], ["nope", "no such folder"]),
        (["empty", "out"], ["empty", "config.json"]),
    ],
)
def test_export(
    refused: Refused, tiny_run: Path, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    refused(["export", *(tiny_run if each == "RUN" else each for each in arguments)], words)


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("tokenizer", "", ["missing: --corpus, --output"]),
        ("tokenizer", "--corpus CORPUS --output full", ["full", "not an empty folder"]),
        ("tokenizer", "--corpus CORPUS --output full/file", ["full/file", "not an empty folder"]),
        ("tokenizer", "--corpus CORPUS --output out --vocab_size 3", ["vocab_size", "3"]),
        ("tokenizer", "--corpus CORPUS --output out --vocab_size many", ["found 'many'"]),
        ("tokenizer", "--corpus CORPUS --output out --vocabsize 9", ["did you mean 'vocab_size'"]),
        ("tokenizer", "--corpus nope.txt --output out", ["nope.txt: no such file"]),
        ("tokenizer", "--corpus full/file --output out", ["full/file", "no text"]),
        ("prepare", "", ["missing: --corpus, --tokenizer, --output"]),
        ("prepare", "--corpus CORPUS --output out", ["missing: --tokenizer"]),
        (
            "prepare",
            "--corpus CORPUS --tokenizer TOKENIZER --output full",
            ["full", "something else"],
        ),
        ("prepare", "--corpus nope.txt --tokenizer TOKENIZER --output out", ["nope.txt"]),
        ("prepare", "--corpus CORPUS --tokenizer nope --output out", ["nope"]),
        ("prepare", "--corpus CORPUS --tokeniser TOKENIZER --output out", ["'tokenizer'"]),
        ("prepare", "--corpus CORPUS --tokenizer TOKENIZER --output full/file/x", ["full/file/x"]),
        (
            "prepare",
            "--corpus CORPUS --tokenizer TOKENIZER --output out --workers 0",
            ["workers", "0", "1 or more"],
        ),
    ],
)
def test_tokenizer_and_prepare(
    refused: Refused,
    corpus_file: Path,
    tiny_run: Path,
    tmp_path: Path,
    command: str,
    arguments: str,
    words: list[str],
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    places = {"CORPUS": corpus_file, "TOKENIZER": tiny_run / "tokenizer"}
    refused([command, *(places.get(each, each) for each in arguments.split())], words)


def test_what_stands_in_order_and_is_given_by_name_is_told_its_place(bertlab: Command) -> None:
    code, _, error = bertlab("export", "runs/1", "--output", "folder")
    assert code == 2
    assert "output: is given without --output, in this order: model output" in error


def test_what_is_no_checkpoint_is_told(
    refused: Refused, fit: Refused, bertlab: Command, tiny_run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "huggingface"
    assert bertlab("export", tiny_run, folder)[0] == 0
    words = ["no such run or checkpoint", f"start a run from it by --model.init_from {folder}"]
    refused(["fit", "--ckpt_path", folder], words)
    (tmp_path / "empty").mkdir()
    refused(["fit", "--ckpt_path", tmp_path / "empty"], ["it is there, but holds no"])
    files = tiny_run / "checkpoints"
    words = ["checkpoints in it, such as", ".ckpt, or the run"]
    refused(["fit", "--ckpt_path", files], words)
    fit(["--model.init_from", files], words)
    fit(["--model.init_from", tiny_run / "config.yaml"], ["found text in place of tensors"])


@pytest.mark.slow
def test_what_a_pre_trained_model_is_no_use_for(refused: Refused, tiny_run: Path) -> None:
    refused(["test", "--ckpt_path", tiny_run], ["has no test rows", "bertlab validate"])
    words = ["--ckpt_path", "trains a head and the checkpoint objectives", "--model.init_from"]
    refused(["fit", "finetune/quickstart", "--ckpt_path", tiny_run], words)
    refused(["export", "--ckpt_path", tiny_run, "out"], ["ckpt_path", "in this order: model"])


def test_data_where_a_config_belongs(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\nA text,a\n")
    refused(
        ["fit", tmp_path / "rows.csv"], ["rows.csv: is data, expected a config", "bertlab init"]
    )


def test_a_file_whose_name_is_not_utf8(refused: Refused, tmp_path: Path) -> None:
    name = "w\udcff.csv"  # the byte 0xff, as Python reads it from the command line
    (tmp_path / name).write_text("text\nA day.\n", "utf-8")
    words = ["error E103: an argument holds", "bytes that are not UTF-8"]
    refused(["predict", "--ckpt_path", "nowhere", "--input", name], words)
