"""A model with a larger vocabulary: new pieces behind the old ones, all weights kept."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from bertlab import CheckpointError, CommandError, Pretrained, TokenizerError, check_at_least
from bertlab.api import ConfigError
from bertlab.extend import (
    Corpus,
    build_encoder,
    known_tokenizer,
    name_corpus,
    one_head,
    read_documents,
    read_pretrained,
    with_special_tokens,
)
from bertlab_interop.export import write_read
from bertlab_interop.new_pieces import (
    NewPieces,
    Vocabulary,
    count_words,
    pieces_of,
    pieces_of_corpus,
    pieces_of_words,
    read_words,
)


@dataclass(frozen=True)
class ExtensionReport:
    """What was added to a vocabulary.

    Attributes:
        output: the folder.
        before: tokens of the old vocabulary.
        pieces: the new ones in the order of their ids.
        pieces_a_word: of the corpus, with the old and the new vocabulary; None without a corpus.
        notes: sentences for the user about what the export changed or left behind.
    """

    output: Path
    before: int
    pieces: tuple[str, ...]
    pieces_a_word: tuple[float, float] | None = None
    notes: list[str] = field(default_factory=list)


def extend_vocabulary(
    model: str | Path,
    output: str | Path,
    corpus: Corpus | str | Path | Iterable[str] | None = None,
    add: int | None = None,
    words: str | Path | Sequence[str] | None = None,
    min_frequency: int = 2,
    overwrite: bool = False,
    head: str | None = None,
    special_tokens: Sequence[str] = (),
) -> ExtensionReport:
    """Write a model with further pieces as a folder for ``model.init_from`` and ``data.tokenizer``.

    New pieces get ids behind the old ones. Their rows of the token embedding, and their numbers in
    the bias of a decoder, are the means over the old pieces that stood for them; all else stays, so
    that text without a new piece gets equal states. ``transformers`` loads the folder.

    Args:
        model: run directory, checkpoint, Hugging Face folder or hub name.
        output: folder to make.
        corpus: texts, or the name of a corpus such as a file, in which ``add`` pieces are looked
            for; with ``words`` it is only measured.
        add: number of pieces, joined of neighbours that stand together most often.
        words: words that are to be one piece, or a file with one a line, in place of ``add``.
        min_frequency: neighbours that stand together less often are not joined.
        overwrite: replace an older export.
        head: the one of several heads that is written.
        special_tokens: further special tokens that heads or objectives ask for, such as ``[E1]``.

    Raises:
        CommandError: none of ``add``, ``words`` and ``special_tokens`` is given, or both of the
            first two.
        ConfigError: ``special_tokens`` is no list.
        CorpusError: the corpus cannot be read.
        TokenizerError: a word cannot be a new piece, the corpus gives fewer than ``add``, or a
            special token is blank.
        CheckpointError: the model has no form that ``transformers`` loads.
    """
    if add is not None and words is not None:
        raise CommandError("--add, --words: expected one of them: a number, or a list of words")
    if add is None and words is None and not special_tokens:
        raise CommandError(
            "--add, --words, --special_tokens: expected one of them: a number, words, or tokens"
        )
    if add is not None:
        check_at_least("add", add, 1)
        if corpus is None:
            raise CommandError("--add: needs --corpus, the text in which pieces are looked for")
    check_at_least("min_frequency", min_frequency, 1)
    listed = read_words(Path(words)) if isinstance(words, str | Path) else words
    if listed is not None and not listed:
        raise CommandError("--words: the list is empty")
    _check_special_tokens(special_tokens)
    start = one_head(read_pretrained(str(model)), head)
    vocabulary = Vocabulary(known_tokenizer(start))
    name, texts = _named_texts(corpus)
    counted = None if corpus is None else count_words(vocabulary, texts)
    if listed is not None:
        source = str(words) if isinstance(words, str | Path) else "the list"
        new = pieces_of_words(vocabulary, listed, source)
    elif add is not None:
        assert counted is not None
        new = pieces_of_corpus(vocabulary, counted[0], add, min_frequency, name)
    else:
        new = NewPieces()
    tokenizer = with_special_tokens(vocabulary.with_pieces(new), special_tokens)
    # what stood for a special token, a word in brackets: the mean of its pieces is a beginning; of
    # a character that normalizers strip, such as U+200B, nothing stood there
    first = vocabulary.tokenizer.vocab_size + len(new.old_ids)
    for token in map(tokenizer.token, range(first, tokenizer.vocab_size)):
        new.old_ids[token] = tuple(vocabulary.tokenizer.encode(token)) or (tokenizer.unk_id,)
    grown = grow(start, new)
    rate = None
    if counted is not None and counted[1]:
        both = (vocabulary, Vocabulary(tokenizer))
        before, after = (pieces_of(each, counted[0]) / counted[1] for each in both)
        rate = before, after
    folder = Path(output).expanduser()
    report = write_read(replace(grown, tokenizer=tokenizer), folder, overwrite)
    size = vocabulary.tokenizer.vocab_size
    return ExtensionReport(folder, size, tuple(new.old_ids), rate, report.notes)


def _check_special_tokens(tokens: Sequence[str]) -> None:
    if isinstance(tokens, str):
        raise ConfigError(
            f"special_tokens: found {tokens!r:.80}, expected a list, [{tokens!r:.80}]"
        )
    for token in tokens:
        if not isinstance(token, str) or not token.strip():
            raise TokenizerError(
                f"special_tokens: found {token!r:.80}, expected tokens with a character, such as "
                "[E1]"
            )


def _named_texts(corpus: Corpus | str | Path | Iterable[str] | None) -> tuple[str, Iterable[str]]:
    """Return what a corpus is called in errors, and its texts."""
    if isinstance(corpus, str | Path):
        corpus = name_corpus(str(corpus))
    if isinstance(corpus, Corpus):
        documents = read_documents(corpus)
        return corpus.name, (text for document in documents for text in document.sentences)
    return "the text", () if corpus is None else corpus


def grow(start: Pretrained, new: NewPieces) -> Pretrained:
    """Return a model with rows for new pieces; ids that were padding already get them first."""
    first = known_tokenizer(start).vocab_size
    rows = max(start.vocab_size, first + len(new.old_ids))
    with torch.device("meta"):  # names without memory
        encoder = build_encoder(start.encoder_config, start.vocab_size)
    embedding = encoder.token_embedding.weight
    (name,) = (each for each, tensor in encoder.named_parameters() if tensor is embedding)
    tied = {task for form in encoder.huggingface for task in form.head_names(encoder.causal)}
    names = [f"encoder.{name}", *(f"tasks.{task}.bias" for task in sorted(tied))]
    found = {each: start.state[each] for each in names if each in start.state}
    if f"encoder.{name}" not in found:
        raise CheckpointError(f"{start.source}: has no token embedding encoder.{name}")
    grown = {each: _grown(tensor, first, rows, new.old_ids) for each, tensor in found.items()}
    return replace(start, vocab_size=rows, state=start.state | grown, token_counts=None)


def _grown(tensor: Tensor, first: int, rows: int, old_ids: Mapping[str, tuple[int, ...]]) -> Tensor:
    """Return ``(V, …)`` as ``(rows, …)``, with a mean of old rows for each new piece."""
    grown = tensor.new_zeros(rows, *tensor.shape[1:])
    grown[: len(tensor)] = tensor
    for number, ids in enumerate(old_ids.values(), first):
        grown[number] = tensor[list(ids)].double().mean(0).to(tensor.dtype)
    return grown
