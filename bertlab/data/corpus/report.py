"""The data report: what is in a corpus, and whether BERT can learn from it."""

from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path

from bertlab.errors import CorpusError
from bertlab.files.reading import read_object

MAX_UNK_SHARE = 0.05
MAX_SINGLE_SENTENCE_SHARE = 0.9
_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "50 %": 0.5, "75 %": 0.75, "95 %": 0.95, "100 %": 1.0}


@dataclass
class StoreReport:
    """Figures of a token store.

    Attributes:
        documents: documents in the store.
        documents_dropped: documents that were left out because they yield no token.
        single_sentence_documents: documents of one sentence; they yield no sentence pair.
        sentences: sentences (spans of text, paper sec. 3) in the store.
        tokens: tokens in the store, without ``[CLS]`` and ``[SEP]``.
        mean_sentence_length: tokens.
        document_length_quantiles: tokens of a document at each share of the documents.
        bytes_of_text: UTF-8 bytes of the corpus.
        tokens_per_byte: tokens for a byte of text.
        tokens_per_word: tokens for a word or punctuation mark (1: no word is split).
        unk_share: share of tokens that are ``[UNK]``.
        commonest_unknown: most frequent words that became ``[UNK]``, from a sample.
        vocab_size: ids of the tokenizer.
        vocabulary_used: ids that occur in the store.
        words: words of the text, as white space parts them before tokenising; None in a report of
            an older bertlab.
    """

    documents: int
    documents_dropped: int
    single_sentence_documents: int
    sentences: int
    tokens: int
    mean_sentence_length: float
    document_length_quantiles: dict[str, int]
    bytes_of_text: int
    tokens_per_byte: float
    tokens_per_word: float
    unk_share: float
    vocab_size: int
    vocabulary_used: int
    commonest_unknown: list[str] = field(default_factory=list)
    words: int | None = None

    @classmethod
    def read(cls, store: Path) -> "StoreReport":
        """Read ``report.json`` of a store; figures that a newer bertlab added are left out."""
        file = store / "report.json"
        try:
            found = read_object(file)
            known = [each.name for each in fields(cls) if each.name in found]
            return cls(**{name: found[name] for name in known})
        except (ValueError, TypeError) as error:  # no JSON, no mapping, a figure is missing
            raise CorpusError(
                f"{file}: found no data report ({error}), expected what bertlab prepare writes; "
                "prepare the corpus again"
            ) from error

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the printed report: a name and a figure each."""
        quantiles = self.document_length_quantiles.items()
        unknown = f" ({', '.join(self.commonest_unknown[:5])})" if self.commonest_unknown else ""
        return [
            ("documents", f"{self.documents:,}"),
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

    Args:
        report: its figures.
        read_as: in what format its files were read, if that was found out.
    """
    if report.documents == 0:
        dropped = f" ({report.documents_dropped:,} were empty)" if report.documents_dropped else ""
        raise CorpusError(f"the corpus holds no document with text{dropped}")
    if report.documents == 1:
        found = f" ({read_as})" if read_as else ""
        raise CorpusError(
            f"the corpus is one single document{found}; documents are held out whole, so there "
            "must be two. With --corpus_format sentences (data.corpus_format: sentences) each "
            "block between blank lines is a document; format 'document' takes a file for each"
        )
    if report.unk_share > MAX_UNK_SHARE:
        commonest = ", ".join(map(repr, report.commonest_unknown[:10]))
        raise CorpusError(
            f"{report.unk_share:.1%} of the tokens are [UNK]: the tokenizer does not fit the "
            f"corpus (at most {MAX_UNK_SHARE:.0%} may be). The commonest unknown words are "
            f"{commonest}. Use a tokenizer made for this text (check its language and case), or "
            "train one with `bertlab tokenizer`"
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
