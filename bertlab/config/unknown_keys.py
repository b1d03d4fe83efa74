"""Which key is meant by one that there is not: misspelt, misplaced, or called so elsewhere."""

from difflib import get_close_matches

from jsonargparse import ArgumentParser

from bertlab.config.yaml_files import keys_of, names_below
from bertlab.plugins.index import missing_package

_MAX_LISTED = 10
# what keys are called in the Trainer and the scripts of transformers, and in papers
OTHER_NAMES = {
    "batch": "data.batch_size",
    "bf16": "trainer.precision",
    "bs": "data.batch_size",
    "dataset": "data.source",
    "dataset_name": "data.source",
    "device": "trainer.accelerator",
    "dropout": "model.encoder.hidden_dropout_prob",
    "epochs": "trainer.max_epochs",
    "eval_steps": "trainer.val_check_interval",
    "fp16": "trainer.precision",
    "gpu": "trainer.devices",
    "gpus": "trainer.devices",
    "gradient_accumulation_steps": "trainer.accumulate_grad_batches",
    "layers": "model.encoder.num_hidden_layers",
    "logging_steps": "trainer.log_every_n_steps",
    "lr": "model.optimizer.learning_rate",
    "lr_scheduler_type": "model.optimizer.schedule.name",
    "mask_prob": "model.objectives.mlm.rate",
    "max_grad_norm": "trainer.gradient_clip_val",
    "max_length": "data.max_seq_length",
    "mlm_probability": "model.objectives.mlm.rate",
    "model_name_or_path": "model.init_from",
    "n_epochs": "trainer.max_epochs",
    "name_or_path": "model.init_from",
    "no_cuda": "trainer.accelerator",
    "num_gpus": "trainer.devices",
    "num_epochs": "trainer.max_epochs",
    "num_train_epochs": "trainer.max_epochs",
    "output_dir": "run_dir",
    "per_device_train_batch_size": "data.batch_size",
    "per_gpu_train_batch_size": "data.batch_size",
    "random_seed": "seed_everything",
    "report_to": "trainer.logger",
    "resume": "ckpt_path",
    "resume_from_checkpoint": "ckpt_path",
    "save_steps": "checkpoint.every_n_train_steps",
    "seed": "seed_everything",
    "seq_length": "data.max_seq_length",
    "seq_len": "data.max_seq_length",
    "steps": "trainer.max_steps",
    "test_file": "data.test",
    "tokenizer_name": "data.tokenizer",
    "train_batch_size": "data.batch_size",
    "train_file": "data.train",
    "validation_file": "data.validation",
    "warmup": "model.optimizer.warmup_steps",
    "warmup_proportion": "model.optimizer.warmup_steps",
    "warmup_ratio": "model.optimizer.warmup_steps",
    "wd": "model.optimizer.weight_decay",
}
# the same of trainer.precision
OTHER_VALUES = {
    "bfloat16": "bf16-mixed",
    "float16": "16-mixed",
    "float32": "32-true",
    "fp16": "16-mixed",
    "fp32": "32-true",
    "half": "16-mixed",
}
# keys of data that only labelled rows have, and a name of what stands in order
_OF_ROWS = {"columns", "format", "label_names", "source", "test", "train", "validation"}
_OF_MODELS = {"checkpoint", "ckpt_path", "init_from", "model", "run"}


def explain_unknown_key(key: str, parser: ArgumentParser) -> str:
    """Say that a key is unknown, and which one may have been meant."""
    known = keys_of(parser)
    if names_below(key, known):
        return f"{key}: is a section, expected a key in it, as in --{key}.KEY VALUE"
    places = [each.dest for each in parser._actions if not each.option_strings]
    if key in places:
        return f"{key}: is given without --{key}, in this order: {' '.join(places)}"
    section, _, name = key.rpartition(".")
    if section == "data" and name in _OF_ROWS and "data.corpus" in known:
        return (
            f"{key}: is a key of labelled rows, which a head learns from, expected model.head; "
            "bertlab init writes a config with one"
        )
    top = key.partition(".")[0]
    if (package := missing_package(top)) is not None:
        return f"{top}: comes with {package}: pip install {package}"
    return f"{key}: no such key{_hint(key, known, places)}"


def _hint(key: str, known: set[str], places: list[str]) -> str:
    section = key.rpartition(".")[0]
    if places and key in _OF_MODELS:
        return f"; expected without a key, in this order: {' '.join(places)}"
    meant = _meant(key, known)
    if meant:
        return f"; did you mean {meant!r}?"
    siblings = names_below(section, known) if section else set()
    if 0 < len(siblings) <= _MAX_LISTED:
        return f", expected one of {', '.join(sorted(siblings))}"
    return "; see --help"


def _meant(key: str, known: set[str]) -> str:
    """Return the known key that ``key`` most likely stands for, or an empty string."""
    section, _, name = key.rpartition(".")
    elsewhere = OTHER_NAMES.get(name.replace("-", "_"), "")
    if elsewhere in known:
        return elsewhere
    # trainer.max_step: misspelt; model.hidden_size and learning_rate: the section is left out
    names = {each.rpartition(".")[2] for each in known}
    inside = {f"{top}.{name}" for top in names_below("", known)}  # objectives, optimizer
    if not section and (part := next((each for each in inside if names_below(each, known)), "")):
        return part
    without = not section and name in names  # max_steps is no max_tokens misspelt
    near = "" if without else _closest(name, names_below(section, known), 0.5)
    if near:  # the name is misspelt
        return f"{section}.{near}" if section else near
    if name not in names:
        name = _closest(name, names, 0.75)
    # the section is misspelt, wrong or left out
    found = _closest(key, {each for each in known if each.rpartition(".")[2] == name}, 0.0)
    return f"model.{key}" if not found and section in ("objectives", "heads") else found


def _closest(word: str, choices: set[str], cutoff: float) -> str:
    matches = get_close_matches(word, sorted(choices), n=1, cutoff=cutoff)
    return matches[0] if matches else ""
