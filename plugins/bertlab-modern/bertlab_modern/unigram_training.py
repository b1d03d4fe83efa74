"""Training the pieces of a Unigram (Kudo 2018) with SentencePiece.

The trainer of ``tokenizers`` adds up in the order of a randomized hash table, so that two trainings
on the same text differ. SentencePiece's gives the same pieces and scores in every run.
"""

import io
from collections.abc import Iterator, Mapping

from bertlab.api import ConfigError, TokenizerError

Piece = tuple[str, float]


def check_settings(shrinking_factor: float, max_piece_length: int) -> None:
    """Raise ConfigError unless both are within SentencePiece's bounds."""
    for key, found, low, high in (
        ("shrinking_factor", shrinking_factor, 0.5, 0.95),
        ("max_piece_length", max_piece_length, 1, 512),
    ):
        if not low <= found <= high:  # or NaN
            raise ConfigError(f"{key}: found {found}, expected {low} to {high}")


def train_unigram(
    words: Mapping[str, int],
    pieces: int,
    byte_fallback: bool,
    shrinking_factor: float,
    max_piece_length: int,
) -> list[Piece]:
    """Return pieces with their log-probabilities; bytes first, then the most probable.

    Args:
        words: how often each normalized word occurs.
        pieces: number to reach.
        byte_fallback: have a piece for each of the 256 bytes.
        shrinking_factor: share of the pieces that each round of pruning keeps.
        max_piece_length: most characters of a piece.

    Raises:
        ConfigError: so few pieces cannot hold the characters.
        TokenizerError: the package ``sentencepiece`` is not installed.
    """
    try:
        from sentencepiece import SentencePieceProcessor, SentencePieceTrainer  # noqa: PLC0415
    except ImportError as error:
        raise TokenizerError(
            "data.tokenizer_kind: unigram is trained by the package sentencepiece, which is not "
            "installed; pip install 'bertlab-lightning[unigram]'"
        ) from error
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_lines(words),
            model_writer=model,
            input_format="tsv",
            model_type="unigram",
            vocab_size=pieces + 1,  # and its own unknown token
            hard_vocab_limit=False,
            byte_fallback=byte_fallback,
            shrinking_factor=shrinking_factor,
            max_sentencepiece_length=max_piece_length,
            normalization_rule_name="identity",  # done by the tokenizer's own
            num_threads=1,  # sums of another number of threads have other last bits
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        # "Internal: …/trainer_interface.cc(622) [condition] Vocabulary size is too small …"
        whole = " ".join(str(error).split())
        said = whole.partition(") ")[2].rpartition("] ")[2] or whole
        raise ConfigError(
            f"data.vocab_size: Unigram cannot be trained to {pieces} pieces: {said}"
        ) from error
    trained = SentencePieceProcessor(model_proto=model.getvalue())
    numbers = [
        number for number in range(trained.get_piece_size()) if not trained.is_unknown(number)
    ]
    return [(trained.id_to_piece(number), trained.get_score(number)) for number in numbers]


def _lines(words: Mapping[str, int]) -> Iterator[str]:
    for word in sorted(words):
        yield f"{word}\t{words[word]}"
