"""Small jobs that the benchmarks of reliability disturb: how they start, how results compare."""

from collections.abc import Callable
from pathlib import Path

from compared_outputs import compare_files, compare_runs
from forked_commands import start, wait

PRETRAIN = """
seed_everything: 7
model:
  encoder: {name: bert, preset: tiny, hidden_size: 64, max_position_embeddings: 64}
  objectives: [mlm, nsp]
  optimizer: {learning_rate: 1.0e-3}
data: {corpus: python-english, vocab_size: 2000, max_seq_length: 64, batch_size: 16,
       validation_sequences: 50}
trainer: {max_steps: 60, val_check_interval: 10, log_every_n_steps: 1, accelerator: cpu}
"""
CHANGING = """
seed_everything: 7
model:
  encoder: {name: bert, preset: tiny, hidden_size: 64, max_position_embeddings: 64}
  objectives: {mlm: {rate: {from: 0.4, to: 0.15, schedule: cosine}}, nsp: {}}
  optimizer: {name: muon, learning_rate: 1.0e-3, schedule: {name: wsd, decay_share: 0.3}}
data: {corpus: python-english, vocab_size: 2000, validation_sequences: 50,
       max_seq_length: {from: 16, to: 64, until: 0.7}, batch_size: {from: 6, to: 24}}
trainer: {max_steps: 60, val_check_interval: 10, log_every_n_steps: 1, accelerator: cpu}
"""
STAGES = """
stages:
  first: {share: 0.5, data.max_seq_length: 32, model.objectives.mlm.rate: {from: 0.4, to: 0.3}}
  second: {share: 0.5, model.objectives.mlm.rate: {from: 0.3, to: 0.15}}
"""
CORPUS = ["--corpus", "python-english"]
FINETUNE = """
seed_everything: 7
model: {head: single_sentence, init_from: WEIGHTS, optimizer: {learning_rate: 1.0e-3}}
data: {source: "python-english:packages", max_seq_length: 64, batch_size: 32}
trainer: {max_steps: 60, val_check_interval: 10, log_every_n_steps: 1, accelerator: cpu,
          limit_val_batches: 4}
"""

Arguments = Callable[[Path, int], list[str]]  # the command for a place to write and data workers
Compare = Callable[[Path, Path], list[str]]  # what differs between two places, a line each


def pretraining(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of a pre-training, and how its results are compared."""
    (folder / "fit.yaml").write_text(PRETRAIN)
    return fit(folder / "fit.yaml"), compare_runs


def changing(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of a pre-training in which much changes, and how it is compared."""
    (folder / "fit.yaml").write_text(CHANGING)
    return fit(folder / "fit.yaml"), compare_runs


def in_stages(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of the same in two stages, and how both are compared."""
    (folder / "fit.yaml").write_text(CHANGING + STAGES)

    def compare(one: Path, two: Path) -> list[str]:
        first = Path("stages", "first")
        return compare_runs(one / first, two / first) + compare_runs(one, two)

    return fit(folder / "fit.yaml"), compare


def finetuning(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of a fine-tuning; it is pre-trained first."""
    (folder / "fit.yaml").write_text(FINETUNE.replace("WEIGHTS", str(pretrained(folder))))
    return fit(folder / "fit.yaml"), compare_runs


def preparing(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of preparing a corpus, and how stores are compared."""
    vocabulary = folder / "vocabulary"
    run(["tokenizer", *CORPUS, "--vocab_size", "2000", "--output", str(vocabulary)], folder)

    def arguments(place: Path, workers: int) -> list[str]:
        named = ["--tokenizer", str(vocabulary), "--output", str(place)]
        return ["prepare", *CORPUS, *named, "--workers", str(max(1, workers))]

    return arguments, compare_files


def making_a_vocabulary(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of making a tokenizer, and how tokenizers are compared."""
    del folder
    made = ["tokenizer", *CORPUS, "--vocab_size", "2000", "--output"]
    return lambda place, _: [*made, str(place)], compare_files


def exporting(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of an export to Hugging Face, and how folders are compared."""
    weights = pretrained(folder)

    def compare(one: Path, two: Path) -> list[str]:
        return compare_files(one / "model", two / "model")  # the card names the folder

    # overwrite: one killed after its last file is begun again
    made = ["export", str(weights), "--overwrite=true"]
    return lambda place, _: [*made, str(place / "model")], compare


def embedding(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of writing features, and how files are compared."""
    weights, text = pretrained(folder), folder / "texts.txt"
    text.write_text("".join(f"This is line {number} of them.\n" for number in range(500)))

    def arguments(place: Path, _: int) -> list[str]:
        made = ["embed", str(text), str(place.with_suffix(".safetensors"))]
        return [*made, "--model", str(weights), "--layers", "[-2,-1]"]

    def compare(one: Path, two: Path) -> list[str]:
        return compare_files(one.with_suffix(".safetensors"), two.with_suffix(".safetensors"))

    return arguments, compare


def predicting(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of predicting, and how predictions are compared."""
    command, _ = finetuning(folder)
    tuned, rows = folder / "tuned", folder / "rows.jsonl"
    run([*command(tuned, 0), "--trainer.max_steps=5"], folder)
    rows.write_text("".join(f'{{"text": "This is line {number}."}}\n' for number in range(2000)))
    made = ["predict", "--ckpt_path", str(tuned), "--data.input", str(rows), "--output"]
    return lambda place, _: [*made, str(place)], compare_files


def evaluating(folder: Path) -> tuple[Arguments, Compare]:
    """Return the command of an evaluation, and how what it writes is compared."""
    weights, text = pretrained(folder), folder / "texts.txt"
    text.write_text("".join(f"This is line {number} of them.\n" for number in range(5000)))
    made = ["evaluate", "--ckpt_path", str(weights), "--evaluation", "held_out_loss"]
    made += ["--data", str(text), "--output"]

    def compare(one: Path, two: Path) -> list[str]:
        return compare_files(one, two, but="manifest.json")  # when, and how long

    return lambda place, _: [*made, str(place)], compare


KINDS: dict[str, Callable[[Path], tuple[Arguments, Compare]]] = {
    "pretrain": pretraining,
    "changing": changing,
    "stages": in_stages,
    "finetune": finetuning,
    "prepare": preparing,
    "tokenizer": making_a_vocabulary,
    "export": exporting,
    "embed": embedding,
    "predict": predicting,
    "evaluate": evaluating,
}


def fit(config: Path) -> Arguments:
    """Return the line that begins a run or goes on with it."""

    def arguments(place: Path, workers: int) -> list[str]:
        named = ["--config", str(config), "--run_dir", str(place), "--ckpt_path", "last"]
        return ["fit", *named, f"--data.num_workers={workers}"]

    return arguments


def pretrained(folder: Path) -> Path:
    """Return a run with some weights."""
    weights = folder / "weights"
    (folder / "first.yaml").write_text(PRETRAIN.replace("max_steps: 60", "max_steps: 10"))
    run(fit(folder / "first.yaml")(weights, 0), folder)
    return weights


def run(arguments: list[str], folder: Path) -> None:
    """Run a command that a job needs done before; raise if it fails."""
    if wait(start(arguments, folder / "before.log")) != 0:
        raise SystemExit(f"bertlab {' '.join(arguments)} failed; see {folder / 'before.log'}")
