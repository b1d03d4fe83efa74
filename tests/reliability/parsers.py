"""Every parser of files from strangers, with a small whole file of its format."""

import contextlib
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from bertlab.api.examples import Column
from bertlab.checkpoints.huggingface import form_of, read_huggingface_config
from bertlab.checkpoints.tensor_files import read_tensors
from bertlab.config.checkpoint_config import read_stored_config
from bertlab.config.merge import read_request
from bertlab.config.yaml_files import read_config
from bertlab.data.corpus.corpus import Corpus, read_documents
from bertlab.data.examples.source import read_rows
from bertlab.errors import BertlabError
from bertlab.heads.sentences import SentencePair, SingleSentence
from bertlab.tokenizer.files import WordPieceTokenizer, load_tokenizer
from bertlab_interop.sstable import DamagedTableError, unpack_snappy
from bertlab_interop.tensor_bundle import read_tensorflow
from bertlab_studies.plan.study_file import make_study
from bertlab_tasks.multiple_choice import MultipleChoice
from bertlab_tasks.span import Span
from bertlab_tasks.tagging import Tagging
from bundle_writer import HEADER, block, entry, packed, table_of
from tests.reliability.bad_files import FORMATS

WHOLE = {form.file: form.whole.encode() for form in FORMATS}
WIKI = b"""<doc id="1" url="u" title="One">
One

The first &amp; only text. It has two sentences.
</doc>
<doc id="2" url="u" title="Two">
Two

Another text.
</doc>
"""
VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\nred\nblue\n"
STUDY = b"""base: base.yaml
variants: {a: {}, b: {objectives: {nsp: null}, evaluate.epochs: 2}}
axes: {rate: {low: {objectives.mlm.rate: 0.1}, high: {objectives.mlm.rate: 0.4}}}
budget: {steps: 10}
seeds: [1, 2]
baseline: a low
"""
SWAG = (
    b",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    b"0,v,1,A man sits. He,A man sits.,He,gold,stands.,sleeps.,sings.,eats.,2\n"
)
HUGGINGFACE = {
    "model_type": "bert",
    "vocab_size": 9,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}
STORED = {
    "seed_everything": 1,
    "model": {
        "encoder": {"name": "bert", "hidden_size": 32},
        "objectives": {"mlm": {"rate": 0.15}},
    },
    "data": {"corpus": ["a.txt"], "max_seq_length": 32, "batch_size": 8},
    "trainer": {"max_steps": 6, "callbacks": [{"class_path": "a.B"}]},
    "checkpoint": {"save_top_k": 1},
}
NUMBERS = np.arange(6, dtype=np.float32).reshape(2, 3)


@dataclass(frozen=True)
class Parser:
    """A parser of one format.

    Attributes:
        file: a name that the format has.
        whole: a whole file of it.
        parse: reads a file; raises BertlabError for one that is wrong.
    """

    file: str
    whole: bytes
    parse: Callable[[Path], object]

    def takes(self, path: Path) -> bool:
        """Parse a file; return whether it was taken. Any error but a BertlabError comes through."""
        try:
            self.parse(path)
        except BertlabError:
            return False
        return True


def _rows(columns: tuple[Column, ...], form: str = "auto") -> Callable[[Path], object]:
    return lambda path: read_rows(str(path), None, {}, form, columns, None)


def _documents(form: str) -> Callable[[Path], object]:
    return lambda path: list(read_documents(Corpus([str(path)], format=form)))  # type: ignore[arg-type]


def _study(path: Path) -> object:
    path.with_name("base.yaml").touch()
    return make_study({"name": "a", **read_config(path)}, str(path), path.parent)


def _config(path: Path) -> object:
    return read_request(["--config", str(path)])


def _huggingface(path: Path) -> object:
    content = read_huggingface_config(path)
    return form_of(content, path)[1].arguments(content, path)


def _pytorch() -> bytes:
    file = io.BytesIO()
    torch.save({"a": torch.arange(6.0)}, file)
    return file.getvalue()


def _tensorflow(path: Path) -> object:
    """Read a block of an index, within a table that has the right checksums."""
    index = path.with_name("bert.ckpt.index")
    index.write_bytes(table_of({b"~": path.read_bytes()}))
    path.with_name("bert.ckpt.data-00000-of-00001").write_bytes(NUMBERS.tobytes())
    return read_tensorflow(index)


def _snappy(path: Path) -> object:
    with contextlib.suppress(DamagedTableError):  # what reads the table tells it by its file
        return unpack_snappy(path.read_bytes())
    return None


def _stored_config(path: Path) -> object:
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):  # the format of a checkpoint is another parser's
        return None
    return read_stored_config(content, str(path))


SINGLE = SingleSentence.columns
PARSERS = {
    "squad": Parser("squad.json", WHOLE["squad.json"], _rows(Span.columns)),
    "squad.gz": Parser("squad.json.gz", gzip.compress(WHOLE["squad.json"]), _rows(Span.columns)),
    "conll": Parser("rows.conll", WHOLE["rows.conll"], _rows(Tagging.columns)),
    "csv": Parser("rows.csv", WHOLE["rows.csv"], _rows(SINGLE)),
    "tsv": Parser("rows.tsv", WHOLE["rows.tsv"], _rows(SINGLE)),
    "jsonl": Parser("rows.jsonl", WHOLE["rows.jsonl"], _rows(SINGLE)),
    "json": Parser(
        "rows.json", b'[{"text": "A.", "label": 1}, {"text": "B.", "label": 0}]', _rows(SINGLE)
    ),
    "swag": Parser("swag.csv", SWAG, _rows(MultipleChoice.columns, "swag")),
    "mrpc": Parser(
        "mrpc.txt",
        b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tA \"b.\tC d.\n0\t3\t4\tE f.\tG.\n",
        _rows(SentencePair.columns, "mrpc"),
    ),
    "wikiextractor": Parser("wiki_00", WIKI, _documents("wikiextractor")),
    "sentences": Parser("text.txt", b"One line.\nTwo.\n\nThree.\n", _documents("sentences")),
    "document": Parser("text.txt", b"One. It goes\non here.\n\nThree.\n", _documents("document")),
    "detected": Parser("text.txt", b"One line.\nTwo.\n\nThree.\n", _documents("auto")),
    "vocabulary": Parser("vocab.txt", VOCABULARY, load_tokenizer),
    "config": Parser("config.yaml", b"model: {objectives: [mlm]}\ndata: {corpus: a}\n", _config),
    "study": Parser("study.yaml", STUDY, _study),
    "huggingface": Parser("config.json", json.dumps(HUGGINGFACE).encode(), _huggingface),
    "pytorch": Parser("pytorch_model.bin", _pytorch(), read_tensors),
    "stored config": Parser("config.json", json.dumps(STORED).encode(), _stored_config),
    "tensorflow": Parser("block", block({b"": HEADER, b"bert/a": entry(NUMBERS, 0)}), _tensorflow),
    "snappy": Parser("block", packed(b"A text, a text, a text, and a text again."), _snappy),
    "safetensors": Parser("model.safetensors", save({"a": torch.arange(6.0)}), read_tensors),
    "tokenizer": Parser(
        "tokenizer.json",
        WordPieceTokenizer.from_vocabulary(VOCABULARY.decode().split()).to_json().encode(),
        load_tokenizer,
    ),
}  # fmt: skip
