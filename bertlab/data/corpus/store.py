"""The token store: a corpus tokenized once, on disk, memory-mapped; and the report of its figures.

A folder of flat arrays (``.npy``, see :class:`TokenStore`), so that one vectorized gather reads any
set of positions; beside them ``tokenizer/`` that made them, the data report ``report.json``, and
``store.json``, which says what the store holds, with size and SHA-256 of each file, and is written
last. Hashes are compared by :meth:`TokenStore.check`.

A store of several shards (format version 2) is bertlab-cluster's, as is one behind a URL.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bertlab.api.tokenizer import TokenArray
from bertlab.data.rows.lines import explain_failed_read
from bertlab.data.sources import default_cache_dir, is_url, remembered, sha256_of, state_of
from bertlab.errors import CorpusError, TokenizerError, TokenStoreError, warn
from bertlab.files import parse_json, read_bytes, read_object
from bertlab.plugins.index import of_package
from bertlab.tokenizer.files import load_tokenizer

FORMAT_VERSION = 1
SHARDED_VERSION = 2
"""Of a store with more than one shard, which bertlab-cluster reads."""
ARRAYS = ("tokens", "sentence_offsets", "document_offsets", "token_counts")
_CHECKED_TOKENS = 2**16  # at each end
_CHECKED_OFFSETS = 1 << 20  # at a time
_HASHED_WHOLE = 2**30  # bytes; of a longer array, parts that are spread over it
_HASHED_PART = 2**24
_FILE_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)  # below the store, none hidden

MAX_UNK_SHARE = 0.05
MAX_SINGLE_SENTENCE_SHARE = 0.9
MAX_REPEATED_SHARE = 0.01
_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "50 %": 0.5, "75 %": 0.75, "95 %": 0.95, "100 %": 1.0}

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StoreMetadata:
    """Content of ``store.json``."""

    format_version: int
    bertlab_version: str  # that wrote it
    corpus_fingerprint: str  # SHA-256, as the next
    tokenizer_fingerprint: str
    vocab_size: int  # V
    tokens: int  # T
    sentences: int  # S
    documents: int  # D
    dtype: str  # of the tokens, uint16 or uint32
    bytes: dict[str, int]  # of each file, an array's by its name; of arrays alone without sha256
    words: int | None = None  # of the text; None in a store of an older bertlab, without a count
    sha256: dict[str, str] | None = None  # of each file, named as in bytes; None as of words


class TokenStore:
    """Read-only view of a token store; opening costs the same whatever its size.

    Pickles as its path, so that data workers map the same pages.

    Attributes:
        path: the folder.
        metadata: content of ``store.json``.
        manifest_sha256: of ``store.json`` itself.
        tokenizer: the tokenizer that made the store.
        tokens: ``(T,)`` uint16 or uint32 ids, documents end to end, no special tokens.
        sentence_offsets: ``(S + 1,)`` int64; sentence s is
            ``tokens[sentence_offsets[s]:sentence_offsets[s + 1]]``; none is empty.
        document_offsets: ``(D + 1,)`` int64; document d holds the sentences
            ``[document_offsets[d], document_offsets[d + 1])``; none is empty.
        token_counts: ``(V,)`` int64 occurrences of each id.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        content, self.manifest_sha256 = read_manifest(self.path)
        self.metadata = self._read_metadata(content)
        arrays = self._open_arrays()
        self.tokens: TokenArray = arrays["tokens"]
        self.sentence_offsets: IntArray = arrays["sentence_offsets"]
        self.document_offsets: IntArray = arrays["document_offsets"]
        self.token_counts: IntArray = arrays["token_counts"]
        self._check_arrays()
        try:
            self.tokenizer = load_tokenizer(self.path / "tokenizer")
        except TokenizerError as error:
            raise TokenStoreError(f"{self.path}: damaged token store: {error}") from error
        if self.tokenizer.fingerprint != self.metadata.tokenizer_fingerprint:
            raise damaged(self.path, "its tokenizer/ is not the one that made the tokens")

    @classmethod
    def open(cls, path: str | Path, cache_dir: Path | None = None) -> "TokenStore":
        """Open and check a store.

        Args:
            path: its folder, or the URL of one.
            cache_dir: where the shards of one behind a URL are kept for a while;
                ``default_cache_dir`` if None.

        Raises:
            TokenStoreError: no store, an incomplete or damaged one, or another format version.
        """
        if is_url(str(path)):
            return _store_of_cluster("behind a URL", path, cache_dir)
        if read_manifest(Path(path))[0]["format_version"] == SHARDED_VERSION:
            return _store_of_cluster("of several shards", path, cache_dir)
        return cls(path)

    def __len__(self) -> int:
        """Number of documents D."""
        return self.metadata.documents

    def __reduce__(self) -> tuple[type["TokenStore"], tuple[Any, ...]]:
        # a worker maps the files anew; arrays are not copied
        return type(self), (self.path,)

    @cached_property
    def document_token_offsets(self) -> IntArray:
        """``(D + 1,)`` int64; document d is ``tokens[offsets[d]:offsets[d + 1]]``."""
        # sentence_offsets [0, 3, 5, 9], document_offsets [0, 2, 3] -> [0, 5, 9]
        offsets: IntArray = self.sentence_offsets[self.document_offsets]
        return offsets

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of what the arrays hold, wherever they lie; they are read for it.

        Of an array over 1 GiB it is that of 64 parts, the first and the last bytes among them.
        """
        digest = hashlib.sha256()
        for name in ARRAYS:
            array = getattr(self, name)
            size = len(array) * array.dtype.itemsize
            starts = range(0, size, _HASHED_PART)
            if size > _HASHED_WHOLE:
                count = _HASHED_WHOLE // _HASHED_PART
                places = np.linspace(0, size - _HASHED_PART, count, dtype=np.int64)
                starts = places.tolist()
            digest.update(f"{name} {size} ".encode())
            for start in starts:
                digest.update(bytes_of(array, start, min(start + _HASHED_PART, size)))
        return digest.hexdigest()

    @property
    def hashes(self) -> dict[str, str | None]:
        """SHA-256 (hex) of each file, as ``store.json`` says; None of an older bertlab's."""
        known = self.metadata.sha256
        files = {name: name if "." in name else f"{name}.npy" for name in self.metadata.bytes}
        return {file: known.get(name, "") if known else None for name, file in files.items()}

    @property
    def recorded(self) -> dict[str, str | None]:
        """SHA-256 (hex) of ``store.json`` and of the files beside it, for the record of a run."""
        beside = {file: sha256 for file, sha256 in self.hashes.items() if "/" not in file}
        return beside | {"store.json": self.manifest_sha256}

    def check(self, cache_dir: Path | None = None) -> str:
        """Return :attr:`digest`, after each file was compared with its hash.

        All is read for it once, as long as size, times and inode of each file stay what they are.
        """

        def compare() -> str:
            for file, expected in self.hashes.items():
                with explain_failed_read(str(self.path / file), TokenStoreError):
                    if expected not in (None, sha256_of(self.path / file)):
                        raise damaged(self.path, f"{file} is not what store.json says")
            return self.digest

        states = [state_of(self.path / file) for file in self.hashes]
        of = [str(self.path.resolve()), self.manifest_sha256, states]
        return remembered(cache_dir or default_cache_dir(), of, compare)

    def counts_of(self, document: int) -> IntArray:
        """Return ``(vocab_size,)`` int64 occurrences of each id in a document."""
        start, end = self.document_token_offsets[document : document + 2]
        counts = np.bincount(self.tokens[start:end], minlength=self.metadata.vocab_size)
        if len(counts) > self.metadata.vocab_size:
            raise damaged(self.path, f"tokens.npy holds id {len(counts) - 1} in {start}:{end}")
        return counts

    def counted_words(self, key: str) -> int:
        """Return the number of words of the text, for a config key that needs it."""
        if self.metadata.words is None:
            raise TokenStoreError(
                f"{key}: found a token store without a count of words, {self.path}, made by "
                f"bertlab {self.metadata.bertlab_version}; delete it and prepare the text again"
            )
        return self.metadata.words

    def _read_metadata(self, content: dict[str, Any]) -> StoreMetadata:
        if content["format_version"] != FORMAT_VERSION:
            raise TokenStoreError(f"{self.path}: has several shards; open it by TokenStore.open")
        return StoreMetadata(**checked_fields(self.path, content))

    def _open_arrays(self) -> dict[str, Any]:
        """Return the arrays by name, each as the class says, and no others."""
        return {name: map_array(self.path, name, self.metadata) for name in ARRAYS}

    def _check_arrays(self) -> None:
        self._check_forms(("tokens", "sentence_offsets", "document_offsets", "token_counts"))
        self._check_rise("sentence_offsets", self.metadata.tokens)
        # Of the tokens only the edges: a start would read all of them. The sampler looks on.
        for part in (slice(_CHECKED_TOKENS), slice(-_CHECKED_TOKENS, None)):
            edge = self.tokens[part]
            if len(edge) and int(edge.max()) >= self.metadata.vocab_size:
                end = self.metadata.vocab_size - 1
                found = f"id {edge.max()} but the vocabulary ends at {end}"
                raise damaged(self.path, f"tokens.npy holds {found}")

    def _check_forms(self, names: Sequence[str]) -> None:
        meta = self.metadata
        offsets = np.dtype(np.int64), (meta.documents + 1,)
        expected = {
            "tokens": (np.dtype(meta.dtype), (meta.tokens,)),
            "sentence_offsets": (np.dtype(np.int64), (meta.sentences + 1,)),
            "document_offsets": offsets,
            "document_token_offsets": offsets,
            "token_counts": (np.dtype(np.int64), (meta.vocab_size,)),
        }
        for name in names:
            array, form = getattr(self, name), expected[name]
            if (array.dtype, array.shape) != form:
                found = f"{array.dtype} {array.shape}, expected {form[0]} {form[1]}"
                raise damaged(self.path, f"{name}.npy holds {found}")
        self._check_rise("document_offsets", meta.sentences)
        if int(self.token_counts.sum()) != meta.tokens:
            raise damaged(self.path, f"token_counts.npy does not add up to {meta.tokens}")

    def _check_rise(self, name: str, end: int) -> None:
        offsets = getattr(self, name)
        if offsets[0] != 0 or offsets[-1] != end:
            found = f"from {offsets[0]} to {offsets[-1]}, expected 0 to {end}"
            raise damaged(self.path, f"{name}.npy goes {found}")
        for start in range(0, len(offsets), _CHECKED_OFFSETS):
            part = offsets[start : start + _CHECKED_OFFSETS + 1]  # and the next part's first
            if not (part[1:] > part[:-1]).all():
                raise damaged(self.path, f"{name}.npy goes back from {start} on")


def _store_of_cluster(what: str, path: str | Path, cache_dir: Path | None) -> TokenStore:
    """Open a store by the class that bertlab-cluster adds."""
    failure = f"{path}: cannot read a token store {what}"
    found: TokenStore = of_package("data.ShardedStore", TokenStoreError, failure)(path, cache_dir)
    return found


def read_manifest(path: Path) -> tuple[dict[str, Any], str]:
    """Return content and SHA-256 (hex) of ``store.json``; errors as of :class:`TokenStore`."""
    file = path / "store.json"
    if not file.is_file():
        what = "no store.json in it" if path.is_dir() else "no such folder"
        told = f"{path}: not a token store ({what})"
        raise TokenStoreError(f"{told}; make one with `bertlab prepare --corpus … --output {path}`")
    try:
        found = read_bytes(file)
        content = parse_json(found.decode())
    except (ValueError, OSError) as error:
        raise damaged(path, f"store.json cannot be read: {error}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version not in (FORMAT_VERSION, SHARDED_VERSION):
        raise TokenStoreError(
            f"{file}: token store of format version {version}, this bertlab reads versions up to "
            f"{SHARDED_VERSION}; prepare the corpus again"
        )
    return cast("dict[str, Any]", content), hashlib.sha256(found).hexdigest()


def checked_fields(path: Path | str, content: dict[str, Any]) -> dict[str, Any]:
    """Return what :class:`StoreMetadata` takes of a ``store.json``."""
    fields: dict[str, Any] = {}
    for name, kind in StoreMetadata.__annotations__.items():
        value = content.get(name)
        kinds = {"bytes": (dict,), "words": (int, type(None)), "sha256": (dict, type(None))}
        expected = kinds.get(name, (kind,))
        if type(value) not in expected:
            raise damaged(path, f"{name} of store.json is {value!r}")
        fields[name] = value
    if fields["dtype"] not in ("uint16", "uint32"):
        raise damaged(path, f"dtype of store.json is {fields['dtype']!r}")
    for name, size in fields["bytes"].items():
        if not (_FILE_NAME.fullmatch(name) and type(size) is int and size >= 0):
            raise damaged(path, f"bytes of store.json has {name!r}: {size!r}"[:200])
    return fields


def map_array(path: Path, name: str, meta: StoreMetadata) -> npt.NDArray[Any]:
    """Map the file of an array of a store, whose size is looked at."""
    file = path / f"{name}.npy"
    try:
        size = file.stat().st_size
        if size != meta.bytes.get(name):
            expected = meta.bytes.get(name)
            raise damaged(path, f"{file.name} has {size} bytes, expected {expected}")
        array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path, f"{file.name} cannot be read: {error}") from error
    # A plain view: slicing an np.memmap costs several times as much.
    return array.view(np.ndarray)


def bytes_of(array: Any, start: int, stop: int) -> bytes:  # noqa: ANN401
    """Return bytes of an array's items, which it need not have in one piece."""
    # items of 8 bytes, bytes 10 to 20 -> items 1 and 2, of which the first 2 bytes are left out
    size = array.dtype.itemsize
    first = start // size
    items = np.ascontiguousarray(array[first : -(-stop // size)])
    return items.view(np.uint8)[start - first * size : stop - first * size].tobytes()


def damaged(path: Path | str, why: str) -> TokenStoreError:
    """Return the error for a store that is not as `prepare` wrote it."""
    return TokenStoreError(f"{path}: damaged token store: {why}; delete it and prepare it again")


@dataclass
class StoreReport:
    """Figures of a token store, as ``report.json`` has them."""

    documents: int
    documents_dropped: int  # left out, because they yield no token
    single_sentence_documents: int  # they yield no sentence pair
    sentences: int  # spans of text, paper sec. 3
    tokens: int  # without [CLS] and [SEP]
    mean_sentence_length: float  # in tokens
    document_length_quantiles: dict[str, int]  # tokens, by share of the documents: "5 %"
    bytes_of_text: int  # in UTF-8
    tokens_per_byte: float
    tokens_per_word: float  # words and punctuation marks; 1: none is split
    unk_share: float  # of the tokens
    vocab_size: int
    vocabulary_used: int  # ids that occur
    commonest_unknown: list[str] = field(default_factory=list)  # words, from a sample
    words: int | None = None  # parted by white space; None in a report of an older bertlab
    repeated_documents: int | None = None  # the same as an earlier one; None as for words

    @classmethod
    def read(cls, store: Path) -> "StoreReport":
        """Read ``report.json`` of a store; figures that a newer bertlab added are left out."""
        file = store / "report.json"
        try:
            found = read_object(file)
            known = [each.name for each in fields(cls) if each.name in found]
            report = cls(**{name: found[name] for name in known})
            report.rows()  # a figure of another kind cannot be formatted
            return report
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            told = f"{file}: found no data report ({error}), expected what bertlab prepare writes"
            raise CorpusError(f"{told}; prepare the corpus again") from error

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the printed report: a name and a figure each."""
        quantiles = self.document_length_quantiles.items()
        unknown = f" ({', '.join(self.commonest_unknown[:5])})" if self.commonest_unknown else ""
        repeated = self.repeated_documents
        return [
            ("documents", f"{self.documents:,}"),
            *([] if not repeated else [("documents like an earlier one", f"{repeated:,}")]),
            ("documents without tokens, left out", f"{self.documents_dropped:,}"),
            ("documents of one sentence", f"{self.single_sentence_documents:,}"),
            ("sentences", f"{self.sentences:,}"),
            *([] if self.words is None else [("words of the text", f"{self.words:,}")]),
            ("tokens", f"{self.tokens:,}"),
            ("tokens per sentence, mean", f"{self.mean_sentence_length:.1f}"),
            ("tokens per document", ", ".join(f"{name}: {count:,}" for name, count in quantiles)),
            ("text", f"{self.bytes_of_text / 1e6:,.2f} MB"),
            ("tokens per byte", f"{self.tokens_per_byte:.3f}"),
            ("tokens per word", f"{self.tokens_per_word:.2f}"),
            ("share of [UNK]", f"{self.unk_share:.3%}{unknown}"),
            ("vocabulary used", f"{self.vocabulary_used:,} of {self.vocab_size:,}"),
        ]


def length_quantiles(lengths: Counter[int]) -> dict[str, int]:
    """Return exact quantiles of a histogram: the smallest length that reaches each share."""
    total = lengths.total()
    quantiles: dict[str, int] = {}
    # {2: 8, 10: 2} -> 5 % to 75 %: 2, 95 % and 100 %: 10
    reached = 0
    for length in sorted(lengths):
        reached += lengths[length]
        for name, share in _QUANTILES.items():
            if name not in quantiles and reached >= share * total:
                quantiles[name] = length
    return quantiles


def check_store(report: StoreReport, read_as: str = "") -> None:
    """Refuse a corpus that no task can learn from, or a tokenizer that does not fit it.

    ``read_as`` says in what format its files were read, if that was found out.
    """
    if report.documents == 0:
        dropped = f" ({report.documents_dropped:,} were empty)" if report.documents_dropped else ""
        raise CorpusError(f"the corpus holds no document with text{dropped}")
    if report.documents == 1:
        found = f" ({read_as})" if read_as else ""
        raise CorpusError(
            f"the corpus is a single document{found}; some are held out complete, so there "
            "must be two. With --corpus_format sentences (data.corpus_format: sentences) each "
            "block between blank lines is a document, with lines each line, with document each file"
        )
    if report.unk_share > MAX_UNK_SHARE:
        commonest = ", ".join(map(repr, report.commonest_unknown[:10]))
        raise CorpusError(
            f"{report.unk_share:.1%} of the tokens are [UNK]: the tokenizer does not fit the "
            f"corpus (at most {MAX_UNK_SHARE:.0%} may be). The commonest unknown words are "
            f"{commonest}. Use a tokenizer made for this text (check its language and case), or "
            "train one with `bertlab tokenizer`"
        )
    if (report.repeated_documents or 0) > MAX_REPEATED_SHARE * report.documents:
        warn(
            f"{report.repeated_documents:,} of {report.documents:,} documents are the same as an "
            "earlier one; where one is held out and the other trained on, the held-out figures are "
            "better than those of new text: remove what is repeated"
        )


def check_pairs(report: StoreReport) -> None:
    """Refuse a corpus whose documents have no neighboring sentences, where pairs are made."""
    if report.single_sentence_documents > MAX_SINGLE_SENTENCE_SHARE * report.documents:
        raise CorpusError(
            f"{report.single_sentence_documents:,} of {report.documents:,} documents have exactly "
            "one sentence, so there are no neighboring sentences to learn from. Most likely a "
            "blank line follows every sentence: blank lines go between documents only. "
            "data.input_format: doc_sentences makes no pairs"
        )
