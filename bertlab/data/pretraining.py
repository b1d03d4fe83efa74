"""The DataModule of pre-training: a corpus, its held-out part, and text to predict on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from bertlab.api.batch import IntArray
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Objective, Task
from bertlab.api.tokenizer import Tokenizer, TokenizerKind
from bertlab.data.corpus.corpus import Corpus, naming
from bertlab.data.corpus.documents import Format
from bertlab.data.corpus.prepare import open_prepared, prepare_cached, tokenizer_cached
from bertlab.data.corpus.store import StoreReport, TokenStore, check_pairs
from bertlab.data.inputs import TextRows, input_texts
from bertlab.data.loader import SamplingReport, SequenceStream, StepLoader, report_sampling
from bertlab.data.module import EVALUATION_SEED, ReportRow, TaskData
from bertlab.data.run_length import Amounts, StepSettings, steps_for_sequences
from bertlab.data.sampler import SequenceSampler, check_max_seq_length, load_sampler
from bertlab.data.sources import default_cache_dir
from bertlab.errors import (
    ConfigError,
    CorpusError,
    TokenizerError,
    check_at_least,
    check_processes,
    check_share,
)
from bertlab.objectives.changing import Change, WholeNumber
from bertlab.plugins.index import added_name, make_plugin
from bertlab.tokenizer.files import load_tokenizer


class PretrainingData(TaskData):
    """Packed batches from unlabelled text.

    Args:
        corpus: files, folders, their URLs, ``hf:NAME`` of ``datasets``, ``python-english``, the
            output of ``bertlab prepare``, or a source with settings: ``{source: NAME, …}``.
        corpus_format: how files are laid out; ``auto`` looks at each.
        text_column: column that holds the text, for tabular sources.
        errors: what to do about bytes that are not UTF-8.
        language: for sentence splitting, where the text has no sentence marks.
        tokenizer: ``vocab.txt``, ``tokenizer.json``, a run or a folder; if not given, that of
            ``model.init_from``, else one is trained on the corpus.
        tokenizer_kind: ``name`` and settings of the kind that is trained, if ``tokenizer`` is not
            given; WordPiece by default.
        vocab_size: size of a vocabulary that is trained.
        lowercase: whether a vocabulary that is trained is uncased.
        input_format: what a sequence is made of: ``segment_pairs`` is BERT's; those of RoBERTa's
            table 2 come with bertlab-modern.
        max_seq_length: longest sequence in tokens, special tokens included. ``{from: 64, to: 512}``
            changes it over the run, as the masking rate: sequences are then read in parts, by
            bertlab-modern.
        short_sequence_probability: share of sequences that are shorter at random (app. A.2).
        random_pair_share: share of pairs whose B is random (app. A.2: half); sentence-order
            prediction wants 0.
        batch_size: sequences in an optimiser step, over all devices and accumulated batches; may
            change over the run, too. Those that are read in parts count as one.
        batch_tokens: instead of ``batch_size``: about so many tokens in an optimiser step.
        validation_fraction: share of the corpus, in whole documents, that is held out.
        validation_sequences: sequences of the held-out part to evaluate on.
        num_workers: processes that make batches ahead of the device; 0 makes them in line.
        prepare_workers: processes that tokenise the corpus.
        cache_dir: where prepared corpora are kept; ``$BERTLAB_CACHE`` or ``~/.cache/bertlab``.
        text: sentences for ``bertlab predict``, with ``[MASK]`` where a word is to be found.
        text_pair: a second sentence for each, for next-sentence prediction.
        input: instead a file of texts, or with columns ``text`` and ``text_pair``; ``-`` is stdin.
        seed: of sampling: which text is in which sequence; ``seed.order`` of a config.
        mask_seed: of what the objectives draw; ``seed.masks`` of a config. ``seed`` if None.
    """

    def __init__(
        self,
        corpus: str | list[str] | None = None,
        corpus_format: Format = "auto",
        text_column: str = "text",
        errors: Literal["strict", "replace"] = "strict",
        language: str = "en",
        tokenizer: str | None = None,
        tokenizer_kind: dict[str, Any] | None = None,
        vocab_size: int = 30_000,
        lowercase: bool = True,
        input_format: str = "segment_pairs",
        max_seq_length: int | Change = 128,
        short_sequence_probability: float = 0.1,
        random_pair_share: float = 0.5,
        batch_size: int | Change | None = None,
        batch_tokens: int | Change | None = None,
        validation_fraction: float = 0.02,
        validation_sequences: int = 2000,
        num_workers: int = 0,
        prepare_workers: int = 1,
        cache_dir: str | None = None,
        text: str | list[str] | None = None,
        text_pair: str | list[str] | None = None,
        input: str | None = None,
        seed: int = 0,
        mask_seed: int | None = None,
    ) -> None:
        super().__init__()
        # the parser of a config also lets {source: NAME, …} through, each key as its class says
        self.corpus = Corpus.of(corpus, corpus_format, text_column, errors, language)
        self.tokenizer_path = tokenizer
        kind = tokenizer_kind
        self.tokenizer_kind = (
            kind if kind is None else make_plugin("tokenizer", kind, TokenizerKind)
        )
        self.vocab_size = vocab_size
        self.lowercase = lowercase
        self.input_format = input_format
        sizes = {"batch_size": batch_size, "batch_tokens": batch_tokens}
        self.step_settings = StepSettings.read({"max_seq_length": max_seq_length, **sizes})
        _, self.max_seq_length = self.step_settings.lengths
        changes = self.step_settings.changing_length is not None
        self.sampler_class = load_sampler(input_format, in_parts=changes)
        self.short_sequence_probability = short_sequence_probability
        self.random_pair_share = random_pair_share
        self.validation_fraction = validation_fraction
        self.validation_sequences = validation_sequences
        self.num_workers = num_workers
        self.prepare_workers = prepare_workers
        self.cache_dir = Path(cache_dir).expanduser() if cache_dir else default_cache_dir()
        self.text = [text] if isinstance(text, str) else text
        self.text_pair = [text_pair] if isinstance(text_pair, str) else text_pair
        self.input = input
        self.seed = seed
        self.mask_seed = seed if mask_seed is None else mask_seed
        self._check_sizes()
        self.objectives: Mapping[str, Objective] = {}
        self.tokenizer: Tokenizer | None = None
        self.store: TokenStore | None = None
        self.train_sampler: SequenceSampler | None = None
        self.validation_sampler: SequenceSampler | None = None

    def load_tokenizer(self) -> Tokenizer:
        """Load ``tokenizer``, or train one on the corpus unless that has been done before."""
        if self.tokenizer_path:
            self._check_not_trained(f"data.tokenizer gives {self.tokenizer_path}")
            return load_tokenizer(Path(self.tokenizer_path))
        self._check_corpus()
        prepared = open_prepared(self.corpus, self.cache_dir)
        if prepared is not None:
            self._check_not_trained(f"{self.corpus.sources[0]} was prepared with one")
            return prepared.tokenizer
        settings = self.vocab_size, self.lowercase, self.cache_dir, self.tokenizer_kind
        return tokenizer_cached(self.corpus, *settings, self.special_tokens)

    def _check_not_trained(self, why: str) -> None:
        if self.tokenizer_kind is not None:
            told = f"data.tokenizer_kind: says what tokenizer to train, but {why}"
            raise ConfigError(f"{told}; leave one of the two out")

    def connect(self, tokenizer: Tokenizer, tasks: Mapping[str, Task]) -> None:
        """Set the tokenizer that encodes the text and the objectives that label it."""
        self.tokenizer = tokenizer
        self.objectives = {
            name: task for name, task in tasks.items() if isinstance(task, Objective)
        }
        for name, objective in self.objectives.items():
            if objective.requires_pairs and not self.sampler_class.has_pairs:
                raise ConfigError(
                    f"model.objectives.{name} needs pairs of segments, but data.input_format is "
                    f"{self.input_format!r}; use 'segment_pairs' or 'sentence_pairs', or drop "
                    f"{name} from model.objectives"
                )
            if objective.requires_mask:
                tokenizer.require_mask(f"model.objectives.{name}")

    def prepare(self, command: str) -> None:
        """Tokenise the corpus, unless that has been done before, and split off what is held out."""
        del command
        if self.store is not None:
            return
        assert self.tokenizer is not None, "connect() comes first"
        self._check_corpus()
        self.store = open_prepared(self.corpus, self.cache_dir) or prepare_cached(
            self.corpus, self.tokenizer, self.cache_dir, workers=self.prepare_workers
        )
        if self.store.tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise TokenizerError(
                f"data.corpus: {self.corpus.sources[0]} was prepared with another tokenizer than "
                "this run's; prepare the text anew with this one"
            )
        self.store_digest = self.store.check(self.cache_dir)
        split_rng = CounterRNG(EVALUATION_SEED, "validation split")
        with naming(self.corpus):
            if self.sampler_class.has_pairs and (self.store.path / "report.json").exists():
                check_pairs(StoreReport.read(self.store.path))
            train, held_out = split_documents(
                np.diff(self.store.document_token_offsets), self.validation_fraction, split_rng
            )
            self.held_out_documents = held_out
            self.train_sampler = self._sampler(train, self.seed)
            self.validation_sampler = self._sampler(held_out, EVALUATION_SEED)

    @cached_property
    def reports(self) -> tuple[StoreReport, SamplingReport]:
        """Return the figures of the corpus, and of the sequences that training will see."""
        assert self.store is not None
        assert self.tokenizer is not None
        assert self.train_sampler is not None
        sampling = report_sampling(
            self.train_sampler, self.objectives, self.tokenizer.mask_id, self.mask_seed
        )
        return StoreReport.read(self.store.path), sampling

    @cached_property
    def token_counts(self) -> IntArray:
        """``(vocab_size,)`` occurrences of each token in the training part of the corpus."""
        assert self.store is not None
        counts = np.array(self.store.token_counts, dtype=np.int64)
        for document in self.held_out_documents:
            counts -= self.store.counts_of(document)
        return counts

    def report_tables(self) -> list[tuple[str, list[ReportRow]]]:
        """Return the data report: the corpus, and the sequences that training will see."""
        return [("training data", [row for report in self.reports for row in report.rows()])]

    def facts(self) -> dict[str, Any]:
        """Return the fingerprints of corpus and store, and the figures of the reports."""
        assert self.store is not None
        return {
            "corpus": self.store.metadata.corpus_fingerprint,
            "store": self.store_digest,
            "store_files": self.store.recorded,
            "data": {type(report).__name__: asdict(report) for report in self.reports},
        }

    @property
    def requires_steps(self) -> Sequence[str]:
        """Config keys whose values change up to the end of a run, which has to be a step."""
        return self.step_settings.requires_steps

    def sequences_per_step(self) -> WholeNumber:
        """Sequences in an optimiser step; ``batch_tokens`` is divided by the mean length."""
        return self._amounts.size

    def mean_lengths(self, steps: float = math.inf) -> tuple[float, float]:
        """Return the mean tokens of a training sequence, and of an optimiser step."""
        return self._amounts.tokens(steps)

    def corpus_words(self, key: str) -> int:
        """Return the words of the text, held-out text included, as white space parts them."""
        assert self.store is not None
        return self.store.counted_words(key)

    def words_per_step(self, key: str, steps: float = math.inf) -> float:
        """Return the mean words in a step: its tokens of text by the corpus' tokens a word."""
        assert self.store is not None
        words_per_token = self.corpus_words(key) / self.store.metadata.tokens
        return words_per_token * self._amounts.text(steps)

    @cached_property
    def _amounts(self) -> Amounts:
        assert self.train_sampler is not None
        kind = Amounts
        if self.step_settings.changing_length is not None:
            kind = cast("type[Amounts]", added_name("bertlab.data", "AmountsInParts"))
        return kind(self.train_sampler, self.step_settings)

    def steps_for_epochs(self, epochs: int) -> int:
        """Return the fewest optimiser steps in which each chunk of text is seen so often."""
        assert self.train_sampler is not None
        return steps_for_sequences(self.sequences_per_step(), epochs * len(self.train_sampler))

    def steps_per_epoch(self) -> int:
        """Return the steps in which each chunk is seen once, or all if their size changes."""
        changes = not isinstance(self.sequences_per_step(), int)
        return int(self.total_steps()) if changes else self.steps_for_epochs(1)

    def train_dataloader(self) -> StepLoader:
        """Return the micro-batches of an epoch, which visits every chunk of text once.

        The last step goes on into the next epoch's first sequences, so that all are whole.
        """
        assert self.train_sampler is not None
        stream = SequenceStream(
            self.train_sampler,
            self.objectives,
            self.mask_seed,
            training=True,
            steps=self.step_sizes(),
            length=self.step_settings.changing_length,
        )
        return self.training_loader(stream, crosses_epochs=True)

    def val_dataloader(self) -> StepLoader:
        """Return the held-out sequences, the same in every evaluation of every run."""
        assert self.validation_sampler is not None
        stream = SequenceStream(
            self.validation_sampler, self.objectives, EVALUATION_SEED, training=False
        )
        return self.evaluation_loader(stream, min(self.validation_sequences, len(stream)))

    def predict_dataloader(self) -> StepLoader:
        """Return ``text`` and ``text_pair``, or the rows of ``input``; errors: ``input_texts``."""
        assert self.tokenizer is not None
        rows = input_texts(self.text, self.text_pair, self.input)
        self.input_rows = TextRows(rows, self.tokenizer, self.max_seq_length)
        return StepLoader(self.input_rows, 1)

    def _check_corpus(self) -> None:
        if not self.corpus.sources:
            expected = "files, a folder, hf:NAME or python-english"
            raise ConfigError(f"data.corpus: found none; expected {expected}")

    def _sampler(self, documents: IntArray, seed: int) -> SequenceSampler:
        assert self.store is not None
        assert self.tokenizer is not None
        return self.sampler_class(
            self.store,
            self.tokenizer,
            documents,
            self.max_seq_length,
            self.short_sequence_probability,
            CounterRNG(seed, "sampler"),
            self.random_pair_share,
        )

    def _check_sizes(self) -> None:
        if "" in self.corpus.sources:
            raise ConfigError("data.corpus: found an empty name, expected a file or folder")
        check_max_seq_length(self.step_settings.lengths[0])
        check_processes("data.num_workers", self.num_workers, 0)
        check_at_least("data.validation_sequences", self.validation_sequences, 1)
        check_processes("data.prepare_workers", self.prepare_workers, 1)
        check_share("data.validation_fraction", self.validation_fraction, ends=False)
        check_share("data.short_sequence_probability", self.short_sequence_probability)
        check_share("data.random_pair_share", self.random_pair_share)


def split_documents(
    document_lengths: IntArray, validation_fraction: float, rng: CounterRNG
) -> tuple[IntArray, IntArray]:
    """Split documents at random into training and held-out ones.

    Held-out documents are a prefix of a random order whose share of tokens is nearest to the
    fraction; documents that alone exceed the fraction stay in training as long as others suffice.
    Of ``(D,)`` lengths in tokens these are ids of documents, each sorted, at least 2 of each.
    """
    check_share("data.validation_fraction", validation_fraction, ends=False)
    with_text = np.flatnonzero(document_lengths > 0)
    if len(with_text) < 4:
        raise CorpusError(
            f"the corpus has {len(with_text)} documents with text, expected at least 4 "
            "(2 to train on, 2 held out); data.corpus_format says where those of plain text end"
        )
    # lengths [5, 90, 8, 7], fraction 0.1: budget 11 -> candidates 0, 3, 2 in random order, at least
    # two of them: the prefix whose total is nearest to 11
    budget = validation_fraction * document_lengths.sum()
    by_length = with_text[np.argsort(document_lengths[with_text], kind="stable")]
    small = max(2, int(np.searchsorted(document_lengths[by_length], budget, side="right")))
    candidates = by_length[:small]
    candidates = candidates[np.argsort(rng.bits(candidates), kind="stable")]
    totals = np.cumsum(document_lengths[candidates])
    most = min(small, len(with_text) - 2)  # two documents stay in training
    # totals[1] is that of two documents
    held_out = 2 + int(np.argmin(np.abs(totals[1:most] - budget)))
    validation = np.sort(candidates[:held_out])
    return np.setdiff1d(with_text, validation), validation
