"""Checking a ``tokenizer.json`` of BPE, Unigram or WordLevel; nothing in it is executed."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

from bertlab import nearest
from bertlab.api import SpecialTokens, TokenizerError
from bertlab.extend import (
    PairLayout,
    added_tokens,
    check_growth,
    check_ids,
    check_memory,
    checked_vocabulary,
    model_ids,
    parts,
    special_token,
)

_BYTES_OF_MERGE = 600  # of memory
_OF_UNICODE = 33  # bytes of U+FDFA, which NFKC makes of one character
# all that ``tokenizers`` has; it takes one of another type by its fields
_PROCESSORS = (
    "BertProcessing",
    "ByteLevel",
    "RobertaProcessing",
    "Sequence",
    "TemplateProcessing",
)

# of each role, by what they are called in published tokenizers
_KNOWN = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>"),
    "mask": ("[MASK]", "<mask>"),
}


def special_tokens(
    named: Mapping[str, Any], content: Mapping[str, Any], source: str
) -> SpecialTokens:
    """Return the special tokens of a ``tokenizer.json`` by their role.

    Args:
        named: content of ``tokenizer_config.json``: ``cls_token`` and so on, text or objects with
            ``content``. A role that it does not name is found by the names that are usual.
        content: of the ``tokenizer.json``; its model is checked here.
        source: what to name in errors.

    Raises:
        TokenizerError: a role other than the mask has no token, or the model is damaged.
    """
    model = _checked_model(content["model"], source)
    vocabulary = model_ids(model)
    every = added_tokens(content.get("added_tokens") or [], vocabulary, (), source)
    ids = vocabulary.keys() | {token["content"] for token in every}
    found: dict[str, str] = {}
    for role, usual in _KNOWN.items():
        given = named.get(f"{role}_token")
        given = given.get("content") if isinstance(given, dict) else given
        if given is not None and not (isinstance(given, str) and given in ids):
            raise TokenizerError(
                f"{source}: {role}_token of tokenizer_config.json is {given!r}, which the "
                "vocabulary lacks"
            )
        chosen = given or next((token for token in usual if token in ids), None)
        if chosen is not None:
            found[role] = str(chosen)
        elif role != "mask":
            raise TokenizerError(
                f"{source}: the vocabulary has no token for the role {role}; expected "
                f"{' or '.join(usual)}, or {role}_token in tokenizer_config.json"
            )
    return SpecialTokens(**found) if "mask" in found else SpecialTokens(**found, mask=None)


def checked_subwords(
    content: Mapping[str, Any], special: SpecialTokens, source: str
) -> dict[str, Any]:
    """Return the parts of a ``tokenizer.json`` that matter, in canonical form.

    Truncation, padding and dropout of merges are left out.

    Raises:
        TokenizerError: ids have gaps, or a part is damaged.
    """
    model = _checked_model(content["model"], source)
    vocabulary = model_ids(model)
    names = special.names()
    every = added_tokens(content.get("added_tokens") or [], vocabulary, names, source)
    ids = vocabulary | {token["content"]: token["id"] for token in every}
    check_ids(ids, source)
    known = {token["content"] for token in every}
    every += [special_token(token, ids[token]) for token in names if token not in known]
    check_growth(content, source, _growth_by_map(content.get("normalizer"), source))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(every, key=lambda token: int(token["id"])),
        "normalizer": content.get("normalizer"),
        "pre_tokenizer": content.get("pre_tokenizer"),
        "post_processor": content.get("post_processor"),
        "decoder": content.get("decoder"),
        "model": model,
    }


def pair_layout(post_processor: Any, special: SpecialTokens, source: str) -> PairLayout:  # noqa: ANN401 (JSON)
    """Return how a post-processor joins pairs; BERT's way if it adds no special tokens.

    Raises:
        TokenizerError: it adds something else than BERT's or RoBERTa's does.
    """
    types = {part["type"]: part for part in _processors(post_processor, source)}
    if "RobertaProcessing" in types:
        return PairLayout(separators=2, second_type=0)
    template = types.get("TemplateProcessing")
    if template is None:
        return PairLayout()
    single, pair = _pieces(template, "single"), _pieces(template, "pair")
    cls, sep = special.cls, special.sep
    names = [name for name, _ in pair]
    layouts = {1: [cls, "A", sep, "B", sep], 2: [cls, "A", sep, sep, "B", sep]}
    for separators, expected in layouts.items():
        if names == expected and [name for name, _ in single] == [cls, "A", sep]:
            return PairLayout(separators, pair[names.index("B")][1])
    raise TokenizerError(
        f"{source}: post_processor: found {' '.join(name for name, _ in single)} and "
        f"{' '.join(names)}, expected {cls} A {sep} and {cls} A {sep} B {sep}"
    )


def _processors(component: Any, source: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 (JSON)
    """Yield a post-processor, and those in a ``Sequence``; none of it may lack its type."""
    if component is None:
        return
    if not isinstance(component, dict):
        raise TokenizerError(
            f"{source}: post_processor: found {component!r:.80}, expected an object with its type"
        )
    kind = component.get("type")
    if kind not in _PROCESSORS:
        shown = str(kind)[:80]
        found = "none" if kind is None else repr(shown)
        raise TokenizerError(
            f"{source}: post_processor.type: found {found}, expected one of "
            f"{', '.join(_PROCESSORS)}{nearest(shown, _PROCESSORS)}"
        )
    yield component
    inner = component.get("processors") if kind == "Sequence" else None
    for each in inner if isinstance(inner, list) else ():
        yield from _processors({} if each is None else each, source)


def _pieces(template: dict[str, Any], key: str) -> list[tuple[str, int]]:
    # [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    values = [part for part in parts(template.get(key)) if "id" in part]
    return [(str(part["id"]), 1 if part.get("type_id") == 1 else 0) for part in values]


def _checked_model(model: dict[str, Any], source: str) -> dict[str, Any]:
    if model["type"] == "Unigram":
        return _checked_unigram(model, source)
    vocabulary = checked_vocabulary(model, source)
    unknown = model.get("unk_token")
    is_token = isinstance(unknown, str) and unknown in vocabulary
    if not is_token and (unknown is not None or model["type"] == "WordLevel"):
        raise TokenizerError(
            f"{source}: model.unk_token: found {unknown!r}, expected a token of its vocabulary"
        )
    merges = model.get("merges")
    if isinstance(merges, list):
        check_memory(source, "the merges", _BYTES_OF_MERGE * len(merges))
        _check_merges(merges, model.get("continuing_subword_prefix"), source)
    # dropout of merges would give the same text other ids each time
    no_dropout = {"dropout": None} if model["type"] == "BPE" else {}
    ordered = dict(sorted(vocabulary.items(), key=lambda item: int(item[1])))
    return model | no_dropout | {"vocab": ordered}


def _check_merges(merges: list[Any], prefix: object, source: str) -> None:
    """Refuse what the backend aborts the process on: it cuts the prefix off without looking."""
    if not isinstance(prefix, str) or not prefix:
        return
    for merge in merges:
        match merge.split(" ") if isinstance(merge, str) else merge:  # "h ##e" or ["h", "##e"]
            case [*_, str(second)] if not second.startswith(prefix):
                raise TokenizerError(
                    f"{source}: model.merges: found {str(merge)[:80]}, expected a second part that "
                    f"begins with {prefix!r}, the continuing_subword_prefix"
                )


def _checked_unigram(model: dict[str, Any], source: str) -> dict[str, Any]:
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, list) or not vocabulary:
        raise TokenizerError(f"{source}: the vocabulary is empty; expected pieces with scores")
    pieces = set()
    for entry in vocabulary:
        match entry:
            case [str(piece), float() | int()] if piece not in pieces:
                pieces.add(piece)
            case _:
                raise TokenizerError(
                    f"{source}: model.vocab: found {str(entry)[:80]}, expected pieces with scores, "
                    "each piece once"
                )
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(vocabulary):
        raise TokenizerError(
            f"{source}: model.unk_id: found {unknown!r}, expected the id of a piece, for "
            "characters that no piece has"
        )
    return model


def _growth_by_map(normalizer: Any, source: str) -> float:  # noqa: ANN401 (JSON)
    """Return how many bytes SentencePiece's normalizer makes of one, beside what Unicode does.

    A damaged map of it is refused: the backend panics on it.
    """
    growth = 1.0
    for part in parts(normalizer):
        if part.get("type") != "Precompiled":
            continue
        try:
            data = base64.b64decode(str(part["precompiled_charsmap"]), validate=True)
            size = int.from_bytes(data[:4], "little")  # of the trie behind it, in bytes
            texts = data[4 + size :].decode().split("\0")
            sound = 0 < size <= len(data) - 4 and size % 4 == 0
        except (KeyError, binascii.Error, UnicodeDecodeError):
            sound = False
        if not sound:
            raise TokenizerError(
                f"{source}: normalizer: its precompiled_charsmap is damaged; copy the file anew"
            )
        growth *= max(1, max(len(text.encode()) for text in texts) / _OF_UNICODE)
    return growth
