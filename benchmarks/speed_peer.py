"""The peers of the speed comparisons: Hugging Face's ``Trainer`` on the same sequences.

    python benchmarks/speed_peer.py pretrain --data FOLDER --size mini --steps 30 [--best]

Stock is what the documentation of transformers shows: fp32, SDPA, rows padded to the longest that
there may be. ``--best`` pads to the longest row of a batch and puts rows of about one length into a
batch; on a GPU it is compiled as well. Allocator settings come from the environment.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import step_clock
import torch
import transformers
from datasets import Dataset, load_from_disk
from speed_sizes import SIZES
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    BertForSequenceClassification,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from bertlab_modern.modern import ModernEncoder


class Ticking(TrainerCallback):
    """Ticks after each optimiser step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:  # noqa: ANN401
        """Tick."""
        del args, state, control, rest
        step_clock.tick()


def model_of(given: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> torch.nn.Module:
    """Return a model with new weights."""
    layers, width, heads = SIZES[given.size]
    if given.modern:
        modern = ModernBertConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=layers,
            hidden_size=width,
            num_attention_heads=heads,
            intermediate_size=ModernEncoder(1, "tiny", hidden_size=width).intermediate_size,
            pad_token_id=tokenizer.pad_token_id,
            attn_implementation=given.attention,
            sparse_prediction=given.best,  # logits of the masked tokens only
        )
        return ModernBertForMaskedLM(modern)
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        attn_implementation=given.attention,
    )
    kind = BertForPreTraining if given.task == "pretrain" else BertForSequenceClassification
    return kind(config)


def main() -> None:
    """Train some steps, or predict."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["pretrain", "finetune", "predict"])
    parser.add_argument("--data", required=True, help="folder of a dataset and a tokenizer")
    parser.add_argument("--size", required=True, choices=list(SIZES))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--best", action="store_true")
    parser.add_argument("--modern", action="store_true", help="ModernBERT, masked LM only")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--output", type=Path, help="file of predictions")
    given = parser.parse_args()
    transformers.set_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(f"{given.data}/tokenizer")
    if given.task == "predict":
        predict(given, tokenizer)
    else:
        train(given, tokenizer)


def train(given: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> None:
    """Train some steps on the rows that are in the folder."""
    rows = load_from_disk(f"{given.data}/rows")
    if not given.best:
        rows = rows.map(
            lambda row: tokenizer.pad(row, "max_length", given.max_seq_length),
            remove_columns=["length"],
        )
    if given.task == "pretrain":
        collator: Any = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    else:
        collator = DataCollatorWithPadding(tokenizer)
    with trainer_of(given, tokenizer, rows, collator) as trainer:
        trainer.train()


def predict(given: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> None:
    """Predict the texts that are in the folder, and write what was predicted in their order."""
    with trainer_of(given, tokenizer, None, DataCollatorWithPadding(tokenizer)) as trainer:
        step_clock.tick()
        lines = Path(given.data, "texts.jsonl").read_text("utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        padding = False if given.best else "max_length"
        rows = Dataset.from_dict({"text": texts}).map(
            lambda batch: tokenizer(
                batch["text"],
                truncation=True,
                max_length=given.max_seq_length,
                padding=padding,
                return_length=True,
            ),
            batched=True,
            remove_columns=["text"],
        )
        order = list(range(len(texts)))
        if given.best:
            lengths = rows["length"]
            order.sort(key=lambda number: lengths[number])
            rows = rows.select(order)
        logits = trainer.predict(rows.remove_columns("length")).predictions
        scores = torch.tensor(logits).softmax(-1).tolist()
        with given.output.open("w", encoding="utf-8") as file:
            for _, text, score in sorted(
                zip(order, (texts[n] for n in order), scores, strict=True)
            ):
                file.write(json.dumps({"text": text, "scores": score}) + "\n")
        step_clock.tick()


@contextmanager
def trainer_of(
    given: argparse.Namespace,
    tokenizer: PreTrainedTokenizerBase,
    rows: Dataset | None,
    collator: Any,  # noqa: ANN401
) -> Iterator[Trainer]:
    """Make a Trainer with a new model; its folder goes with it."""
    on_gpu = given.device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=given.steps,
            per_device_train_batch_size=given.batch_size,
            per_device_eval_batch_size=given.batch_size,
            learning_rate=1e-4,
            warmup_steps=10,
            weight_decay=0.01,
            save_strategy="no",
            report_to="none",
            dataloader_pin_memory=on_gpu,
            dataloader_num_workers=given.workers,
            use_cpu=not on_gpu,
            bf16=given.bf16,
            torch_compile=given.best and on_gpu,
            train_sampling_strategy="group_by_length" if given.best else "random",
            seed=1,
        )
        yield Trainer(
            model=model_of(given, tokenizer),
            args=arguments,
            data_collator=collator,
            train_dataset=rows,
            processing_class=tokenizer,
            callbacks=[Ticking()],
        )


if __name__ == "__main__":
    main()
