"""More than a hundred mistakes that people make by nature, and the message that each gets.

    python benchmarks/natural_mistakes.py > benchmarks/figures/natural_mistakes.md

The messages are to be read: does each say what was wrong, and what to do? Checked here is that each
command ends with exit code 2 (0 where it is taken as it was meant) and one message with a code.
"""

# ruff: noqa: E501  a row of a table is a line

import csv
import json
import os
import re
import shlex
import sys
import tempfile
import zipfile
from pathlib import Path

from forked_commands import start, wait

ROOT = Path(__file__).resolve().parents[1]
ERROR = re.compile(r"^bertlab: error E\d{3}: ", re.MULTILINE)
# what was wrong, and the command
MISTAKES: tuple[tuple[str, str], ...] = (
    ("help as a command", "help"),
    ("no such config", "fit mrpc.yaml"),
    ("a config's name misspelt", "fit quickstrat"),
    ("a config's name without its folder", "fit mrpc"),
    ("a run where a config belongs", "fit run"),
    ("epochs as elsewhere", "fit quickstart --epochs 3"),
    ("lr as elsewhere", "fit quickstart --lr 1e-4"),
    ("batch size without its section", "fit quickstart --batch_size 16"),
    ("steps without their section", "fit quickstart --max_steps 10"),
    ("a section without its section", "fit quickstart --objectives '[mlm]'"),
    ("seed as elsewhere", "fit quickstart --seed 3"),
    ("fp16 as a switch", "fit quickstart --fp16 true"),
    ("gpus as elsewhere", "fit quickstart --gpus 1"),
    ("device as elsewhere", "fit quickstart --device cpu"),
    ("resume as elsewhere", "fit quickstart --resume true"),
    ("num_labels as elsewhere", "fit rows.yaml --model.head.num_labels 2"),
    ("k for thousands", "fit quickstart --trainer.max_steps 10k"),
    ("a million rows a step", "fit quickstart --data.batch_size 1000000"),
    ("a callback that needs an argument", "fit quickstart --trainer.callbacks+=EarlyStopping"),
    ("rows and no head", "fit --data.train rows.csv"),
    ("rows where a config belongs", "fit rows.csv"),
    ("a folder where a config belongs", "fit ."),
    ("a run directory that is a file", "fit quickstart --run_dir rows.csv"),
    ("batch size with a hyphen", "fit quickstart --data.batch-size 16"),
    ("one hyphen", "fit quickstart -seed 3"),
    ("key=value without hyphens", "fit quickstart data.batch_size=16"),
    ("a value left out", "fit quickstart --data.batch_size"),
    ("a number in words", "fit quickstart --data.batch_size sixteen"),
    ("a fraction where a count belongs", "fit quickstart --data.batch_size 0.5"),
    ("a comma as decimal point", "fit quickstart --model.optimizer.learning_rate 1,5e-4"),
    ("a negative rate", "fit quickstart --model.optimizer.learning_rate -1e-4"),
    ("a share above one", "fit quickstart --model.objectives.mlm.rate 15"),
    ("gpu where there is none", "fit quickstart --trainer.accelerator gpu"),
    ("an accelerator that is none", "fit quickstart --trainer.accelerator gpus"),
    ("tpu where there is none", "fit quickstart --trainer.accelerator tpu"),
    ("a strategy misspelt", "fit quickstart --trainer.strategy ddpp"),
    ("no device", "fit quickstart --trainer.devices 0"),
    ("no node", "fit quickstart --trainer.num_nodes 0"),
    ("a precision of a package that is not installed", "fit quickstart --trainer.precision transformer-engine"),
    ("cuda as a device", "fit quickstart --trainer.devices cuda:0"),
    ("fp16 as elsewhere", "fit quickstart --trainer.precision fp16"),
    ("an objective misspelt", "fit quickstart --model.objectives '[mlm, nps]'"),
    ("an objective without its section", "fit quickstart --objectives.nsp null"),
    ("an objective of another paper", "fit quickstart --model.objectives '[electra]'"),
    ("an encoder that is none", "fit quickstart --model.encoder roberta"),
    ("an optimizer by torch's module", "fit quickstart --model.optimizer.name torch.optim.AdamW"),
    ("a size that cannot be divided", "fit quickstart --model.encoder.num_attention_heads 3"),
    ("longer than the positions", "fit quickstart --model.encoder.name bert --data.max_seq_length 1024"),
    ("no such text", "fit quickstart --data.corpus texts/"),
    ("an empty text", "fit quickstart --data.corpus empty.txt"),
    ("a PDF as text", "fit quickstart --data.corpus paper.pdf"),
    ("text in Latin-1", "fit quickstart --data.corpus latin.txt"),
    ("a table without the text's column", "fit quickstart --data.corpus other.csv"),
    ("two texts with a comma", "fit quickstart --data.corpus texts.txt,lines.txt"),
    ("a pattern that nothing fits", "fit quickstart --data.corpus '*.md'"),
    ("a hub name as tokenizer", "fit quickstart --data.tokenizer bert-base-uncased"),
    ("hardly any text", "fit quickstart --data.corpus short.txt"),
    ("a hub name without hf:", "fit quickstart --data.corpus wikitext"),
    ("nsp on one sentence a document", "fit quickstart --data.corpus lines.txt --data.corpus_format document"),
    ("a config for a head, no rows", "fit finetune/sst2"),
    ("rows without the label's column", "fit rows.yaml --data.train no-label.csv"),
    ("rows with columns of other names", "fit rows.yaml --data.train other.csv"),
    ("columns in capitals", "fit rows.yaml --data.train capitals.csv"),
    ("columns the wrong way round", "fit rows.yaml --data.columns '{review: text}'"),
    ("columns as a list", "fit rows.yaml --data.columns '[text, label]'"),
    ("no header", "fit rows.yaml --data.train no-header.csv"),
    ("a label left empty", "fit rows.yaml --data.train empty-label.csv"),
    ("a comma in a text without quotes", "fit rows.yaml --data.train comma.csv"),
    ("the id as the label", "fit rows.yaml --data.train id.csv --data.columns '{label: id}'"),
    ("words where numbers belong", "fit rows.yaml --model.head.regression true"),
    ("plain text as rows", "fit rows.yaml --data.train texts.txt"),
    ("a header and no rows", "fit rows.yaml --data.train header.csv"),
    ("an empty file of rows", "fit rows.yaml --data.train empty.txt --data.format csv"),
    ("Excel's Unicode text", "fit rows.yaml --data.train utf16.csv"),
    ("rows in Latin-1", "fit rows.yaml --data.train latin.csv"),
    ("a zip file", "fit rows.yaml --data.train rows.csv.zip"),
    ("JSON called JSON lines", "fit rows.yaml --data.train array.jsonl"),
    ("percent as a share", "fit rows.yaml --data.validation_fraction 20"),
    ("a folder without splits", "fit rows.yaml --data.source full --data.train null"),
    ("a head for two texts", "fit rows.yaml --model.head sentence_pair"),
    ("a head with a hyphen", "fit rows.yaml --model.head single-sentence"),
    ("a head and an objective", "fit rows.yaml --model.objectives '[mlm]'"),
    ("words without tags", "fit tags.yaml"),
    ("answers numbered from 1", "fit choices.yaml"),
    ("one class only", "fit rows.yaml --data.train one-class.csv"),
    ("an Excel file", "fit rows.yaml --data.train rows.xlsx"),
    ("a quote that never ends", "fit rows.yaml --data.train quote.csv"),
    ("a label that validation alone has", "fit rows.yaml --data.validation new-label.csv"),
    ("BERT's name misspelt", "fit rows.yaml --model.init_from bert-base-uncasd"),
    ("the address of a model", "fit rows.yaml --model.init_from https://huggingface.co/google-bert/bert-base-uncased"),
    ("hf: in front of a model", "fit rows.yaml --model.init_from hf:google-bert/bert-base-uncased"),
    ("a run's config as model", "fit rows.yaml --model.init_from run/config.yaml"),
    ("a run's folder of checkpoints", "fit rows.yaml --model.init_from run/checkpoints"),
    ("a folder without a model", "fit rows.yaml --model.init_from full"),
    ("an empty folder as model", "fit rows.yaml --model.init_from empty"),
    ("a model and a tokenizer misspelt", "fit rows.yaml --data.tokenizer tokenizr"),
    ("sizes that are not the model's", "fit rows.yaml --model.encoder.hidden_size 256"),
    ("a fine-tuning from --ckpt_path", "fit rows.yaml --ckpt_path run"),
    ("a Hugging Face folder to go on with", "fit --ckpt_path hf"),
    ("tabs in YAML", "fit tabs.yaml"),
    ("a key twice in YAML", "fit twice.yaml"),
    ("a section misspelt in YAML", "fit section.yaml"),
    ("1e-4 as text in YAML", "fit text.yaml"),
    ("predict without a model", "predict --text hello"),
    ("predict: a run misspelt", "predict --ckpt_path runn --text hello"),
    ("predict without a text", "predict --ckpt_path run"),
    ("predict: a run without its option", "predict run --text hello"),
    ("predict: a text and a file", "predict --ckpt_path run --text hello --input texts.txt"),
    ("predict: a second text for a head of one", "predict --ckpt_path classifier --text hello --text_pair there"),
    ("predict: nothing after --text", "predict --ckpt_path run --text"),
    ("predict: the best none", "predict --ckpt_path classifier --text hello --top_k 0"),
    ("predict: onto its own input", "predict --ckpt_path classifier --input rows.csv --output rows.csv"),
    ("predict: to Excel", "predict --ckpt_path classifier --input rows.csv --output labelled.xlsx"),
    ("test of a pre-trained model", "test --ckpt_path run"),
    ("test without rows", "test --ckpt_path classifier"),
    ("demo without a model", "demo"),
    ("demo by --ckpt_path", "demo --ckpt_path run"),
    ("a port that is none", "demo run --port 80000"),
    ("a kind of config that is none", "init csv my.yaml"),
    ("init without a file", "init classification"),
    ("predict: no [MASK]", "predict --ckpt_path run --text 'Paris is in France.'"),
    ("predict: <mask>", "predict --ckpt_path run --text 'Paris is in <mask>.'"),
    ("predict: no such input", "predict --ckpt_path run --input texts.csv"),
    ("predict: a column of another name", "predict --ckpt_path run --input other.csv"),
    ("resume without --ckpt_path", "fit short.yaml --run_dir run"),
    ("resume with another rate", "fit short.yaml --run_dir run --ckpt_path last --model.optimizer.learning_rate 1e-3"),
    ("resume for more steps", "fit short.yaml --run_dir run --ckpt_path last --trainer.max_steps 9"),
    ("export by --ckpt_path", "export --ckpt_path run out"),
    ("export to TensorFlow", "export run out --format tensorflow"),
    ("export without a place", "export run"),
    ("export onto a folder with files", "export run full"),
    ("wandb that is not installed", "fit short.yaml --trainer.logger wandb --run_dir logged"),
    ("a command misspelt", "finetune rows.yaml"),
    ("train as elsewhere", "train quickstart"),
    ("an action misspelt", "study rnu studies/quickstart"),
    ("a study without variants", "study run empty-study.yaml"),
    ("a config as study", "study run short.yaml"),
    ("a shipped config as study", "study run quickstart"),
    ("no such study", "study report runs/none"),
    ("status of no study", "study status runs/none"),
    ("seeds for no study", "study add-seeds runs/none 5"),
    ("ablate: one value", "ablate --config quickstart --vary objectives.mlm.rate=0.15"),
    ("ablate: a key without its section", "ablate --config quickstart --vary rate=0.15,0.3"),
    ("evaluate without what", "evaluate --ckpt_path run"),
    ("a plugin misspelt", "plugins show mlmm"),
    ("an error's number alone", "explain 302"),
    ("an evaluation misspelt", "evaluate --ckpt_path run --evaluation blimp --data pairs"),
    ("a tokenizer onto a folder with files", "tokenizer --corpus texts.txt --vocab_size 300 --output full"),
    ("a tokenizer without its option", "tokenizer texts.txt"),
    ("prepare without a tokenizer", "prepare --corpus texts.txt --output store"),
    ("prepare: a run as tokenizer", "prepare --corpus texts.txt --tokenizer run --output store"),
    ("embed without a place", "embed --model run texts.txt"),
    ("embed to CSV", "embed --model run texts.txt states.csv"),
    ("a vocabulary smaller than the alphabet", "tokenizer --corpus texts.txt --vocab_size 10 --output vocabulary"),
)  # fmt: skip


def write_files() -> None:
    """Write what the commands name into the working directory, and train the run."""
    sentences = [
        f"The number {n} is {'odd' if n % 2 else 'even'}. So is {n + 2}." for n in range(400)
    ]
    Path("texts.txt").write_text("\n\n".join(s.replace(". ", ".\n") for s in sentences), "utf-8")
    Path("lines.txt").write_text("One sentence.", "utf-8")
    Path("short.txt").write_text("Too short.\n", "utf-8")
    Path("empty.txt").touch()
    Path("paper.pdf").write_bytes(
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n" + bytes(range(256)) * 40
    )
    Path("latin.txt").write_bytes("Das Café schließt um acht.\n".encode("latin-1") * 50)
    Path("rows.xlsx").write_bytes(b"PK\x03\x04" + bytes(200))
    Path("empty").mkdir()
    Path("full").mkdir()
    Path("full", "notes.txt").write_text("mine", "utf-8")
    rows = [
        (f"The text number {n} is {'good' if n % 2 else 'bad'}", "ab"[n % 2]) for n in range(40)
    ]
    write_csv("rows.csv", ("text", "label"), rows)
    write_csv("no-label.csv", ("text",), [row[:1] for row in rows])
    write_csv("other.csv", ("review", "stars"), rows)
    write_csv("one-class.csv", ("text", "label"), [(text, "a") for text, _ in rows])
    write_csv("new-label.csv", ("text", "label"), [("A text", "c")])
    Path("quote.csv").write_text('text,label\n"It begins,a\n' + "more,b\n" * 9, "utf-8")
    write_odd_rows(rows)
    short = {
        "model": {"encoder": {"preset": "tiny"}},
        "data": {"corpus": "texts.txt", "vocab_size": 300, "max_seq_length": 32, "batch_size": 4},
        "trainer": {"max_steps": 3, "val_check_interval": 1, "accelerator": "cpu"},
        "seed_everything": 1,
    }
    Path("short.yaml").write_text(json.dumps(short), "utf-8")
    head = {
        "model": {"head": "single_sentence", "init_from": "run"},
        "data": {"train": "rows.csv", "validation_fraction": 0.2, "max_seq_length": 32},
        "trainer": {"max_steps": 2, "accelerator": "cpu"},
        "seed_everything": 1,
    }
    Path("rows.yaml").write_text(json.dumps(head), "utf-8")
    Path("tabs.yaml").write_text("data:\n\tbatch_size: 4\n", "utf-8")
    Path("twice.yaml").write_text("data: {batch_size: 4}\ndata: {vocab_size: 300}\n", "utf-8")
    Path("section.yaml").write_text("optimiser: {learning_rate: 0.001}\n", "utf-8")
    Path("text.yaml").write_text("model: {optimizer: {learning_rate: 1e-4x}}\n", "utf-8")
    Path("empty-study.yaml").write_text("base: quickstart\nseeds: 3\n", "utf-8")
    tags = head | {"model": {**head["model"], "head": "tagging"}}
    tags["data"] = {**head["data"], "train": "words.conll"}
    Path("tags.yaml").write_text(json.dumps(tags), "utf-8")
    choices = head | {"model": {**head["model"], "head": "multiple_choice"}}
    columns = {"context": "question", "choices": ["a", "b"], "label": "right"}
    choices["data"] = {**head["data"], "train": "choices.csv", "columns": columns}
    Path("choices.yaml").write_text(json.dumps(choices), "utf-8")
    for command in (
        ["fit", "short.yaml", "--run_dir", "run"],
        ["fit", "rows.yaml", "--run_dir", "classifier"],
        ["export", "run", "hf"],
    ):
        if wait(start(command, Path("run.log"))) != 0:
            sys.exit(Path("run.log").read_text("utf-8"))


def write_odd_rows(rows: list[tuple[str, ...]]) -> None:
    """Write labelled rows in forms that are not right, or not those of ``rows.csv``."""
    good = Path("rows.csv").read_text("utf-8")
    write_csv("capitals.csv", ("Text", "Label"), rows)
    write_csv("empty-label.csv", ("text", "label"), [*rows, ("A text", "")])
    numbered = [(f"x{number}", *row) for number, row in enumerate(rows)]
    write_csv("id.csv", ("id", "text", "label"), numbered)
    questions = [(f"Which of {n}?", "this", "that", str(n % 2 + 1)) for n in range(30)]
    write_csv("choices.csv", ("question", "a", "b", "right"), questions)
    Path("no-header.csv").write_text(good.split("\n", 1)[1], "utf-8")
    Path("comma.csv").write_text(good + "One, two and three,a\n", "utf-8")
    Path("header.csv").write_text("text,label\n", "utf-8")
    Path("utf16.csv").write_text(good, "utf-16")
    Path("latin.csv").write_bytes("text,label\nDas Café,a\n".encode("latin-1") * 20)
    Path("words.conll").write_text("Marie\nCurie\nsaw\n\n" * 20, "utf-8")
    array = [{"text": text, "label": label} for text, label in rows]
    Path("array.jsonl").write_text(json.dumps(array, indent=1), "utf-8")
    with zipfile.ZipFile("rows.csv.zip", "w") as archive:
        archive.write("rows.csv")


def write_csv(name: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Write a CSV file with a header."""
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def said(command: str) -> tuple[int | None, str]:
    """Return exit code and message of a command; what it prints besides is left out."""
    log = Path("command.log")
    log.unlink(missing_ok=True)
    code = wait(start(shlex.split(command), log), 60.0)
    text = log.read_text("utf-8", errors="replace")
    found = ERROR.search(text)
    lines = text[found.start() :] if found else text
    return code, lines.strip()


def main() -> None:
    """Make each mistake, and print a table of what bertlab said."""
    os.environ["COLUMNS"] = "100"
    print("# Natural mistakes\n")
    print("`python benchmarks/natural_mistakes.py` prints this page.\n")
    print("| mistake | command | exit code | message |\n| --- | --- | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["BERTLAB_CACHE"] = str(Path(folder, "cache"))
        write_files()
        for mistake, command in MISTAKES:
            code, text = said(command)
            message = text.removeprefix("bertlab: ").replace(folder, "/home/me")
            message = message.replace(str(ROOT), "/home/me/bertlab")
            message = " ".join(message.split()).replace("|", "\\|")
            print(f"| {mistake} | `bertlab {command}` | {code} | {message[:600]} |", flush=True)
            if code not in (0, 2) or (code == 2 and len(ERROR.findall(text)) != 1):
                print(f"wrong: {command}: {code}", file=sys.stderr)


if __name__ == "__main__":
    main()
