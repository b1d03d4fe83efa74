"""Files that are wrong: small whole ones of each format, and ways to spoil them."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

COLORS = ("red", "blue")
Spoil = Callable[[str, random.Random], str | bytes]


@dataclass(frozen=True)
class Format:
    """A format of labelled files: the head that reads it, a whole file, ways to spoil it."""

    file: str
    head: str
    whole: str = field(repr=False)
    spoils: tuple[Spoil, ...] = field(repr=False)
    settings: tuple[str, ...] = field(default=())


def _table(separator: str) -> str:
    rows = [f"the {COLORS[n % 2]} one {n}{separator}{COLORS[n % 2]}" for n in range(12)]
    return "\n".join([f"text{separator}label", *rows]) + "\n"


def _lines() -> str:
    rows = [{"text": f"it is {COLORS[n % 2]} {n}", "label": COLORS[n % 2]} for n in range(12)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def _tags() -> str:
    return "\n".join(f"{n} O\n{COLORS[n % 2]} B-COLOR\nhere O\n" for n in range(12))


def _squad() -> str:
    paragraphs = []
    for n in range(8):
        context = f"The thing {n} is {COLORS[n % 2]} today."
        answers = [{"text": COLORS[n % 2], "answer_start": context.index(COLORS[n % 2])}]
        questions = [{"id": f"q{n}", "question": "What colour?", "answers": answers}]
        paragraphs.append({"context": context, "qas": questions})
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


def _at(text: str, rng: random.Random, first: int = 1) -> tuple[list[str], int]:
    lines = text.splitlines()
    return lines, rng.randrange(first, len(lines))


def on_a_line(change: Callable[[str], str], first: int = 1) -> Spoil:
    """Spoil one line of a file, not before ``first``."""

    def spoil(text: str, rng: random.Random) -> str:
        lines, at = _at(text, rng, first)
        while not lines[at].strip():
            at = rng.randrange(first, len(lines))
        lines[at] = change(lines[at])
        return "\n".join(lines) + "\n"

    return spoil


def everywhere(change: Callable[[str], str]) -> Spoil:
    """Spoil a text as a whole."""
    return lambda text, rng: change(text)


def byte_that_is_no_text(text: str, rng: random.Random) -> bytes:
    """Put a byte into it that UTF-8 does not have."""
    data, at = text.encode(), rng.randrange(len(text))
    return data[:at] + b"\xff" + data[at:]


def cut_short(text: str, rng: random.Random) -> str:
    """Cut JSON off anywhere: it is not whole then."""
    return text[: rng.randrange(1, len(text) - 2)]


def in_json(change: Callable[[dict, random.Random], object]) -> Spoil:
    """Change a SQuAD file's paragraph."""

    def spoil(text: str, rng: random.Random) -> str:
        content = json.loads(text)
        change(rng.choice(content["data"][0]["paragraphs"]), rng)
        return json.dumps(content)

    return spoil


def on_a_row(change: Callable[[dict], object]) -> Spoil:
    """Change an object of a JSON lines file."""

    def changed(line: str) -> str:
        row = json.loads(line)
        change(row)
        return json.dumps(row)

    return on_a_line(changed, first=0)


def _answer(paragraph: dict) -> dict:
    answer: dict = paragraph["qas"][0]["answers"][0]
    return answer


FORMATS = (
    Format(
        "rows.csv",
        "single_sentence",
        _table(","),
        (
            on_a_line(lambda line: line.split(",")[0]),
            on_a_line(lambda line: line + ",more"),
            on_a_line(lambda line: "," + line.split(",")[1]),
            on_a_line(lambda line: " ," + line.split(",")[1]),
            on_a_line(lambda line: line.split(",")[0] + ","),
            everywhere(lambda text: text.replace("text,", "txt,", 1)),
            everywhere(lambda text: text.replace(",label", ",lable", 1)),
            everywhere(lambda text: text.replace("text,label", "text,text", 1)),
            everywhere(lambda text: ""),
            everywhere(lambda text: "text,label\n"),
            byte_that_is_no_text,
        ),
    ),
    Format(
        "rows.tsv",
        "single_sentence",
        _table("\t"),
        (
            on_a_line(lambda line: line.split("\t")[0]),
            on_a_line(lambda line: line + "\tmore"),
            on_a_line(lambda line: "\t" + line.split("\t")[1]),
            everywhere(lambda text: text.replace("label", "", 1)),
            everywhere(lambda text: text.replace("\t", ",")),
            byte_that_is_no_text,
        ),
    ),
    Format(
        "rows.jsonl",
        "single_sentence",
        _lines(),
        (
            on_a_row(lambda row: row.pop("text")),
            on_a_row(lambda row: row.pop("label")),
            on_a_row(lambda row: row.update(text="")),
            on_a_row(lambda row: row.update(text=3)),
            on_a_row(lambda row: row.update(text=None)),
            on_a_row(lambda row: row.update(text=["a"])),
            on_a_row(lambda row: row.update(label={"a": 1})),
            on_a_row(lambda row: row.update(label=float("nan"))),
            on_a_row(lambda row: row.update(text="\ud800")),
            on_a_line(lambda line: line[:-1], first=0),
            on_a_line(lambda line: "[" * 5000, first=0),
            on_a_line(lambda line: "3", first=0),
            byte_that_is_no_text,
        ),
    ),
    Format(
        "rows.conll",
        "tagging",
        _tags(),
        (
            on_a_line(lambda line: line.split()[0], first=0),
            on_a_line(lambda line: line + " X Y", first=0),
            on_a_line(lambda line: line.split()[0] + " B_COLOR", first=0),
            on_a_line(lambda line: line.split()[0] + " Q-COLOR", first=0),
            byte_that_is_no_text,
            everywhere(lambda text: "\n\n"),
        ),
    ),
    Format(
        "squad.json",
        "span",
        _squad(),
        (
            cut_short,
            in_json(lambda part, rng: part.pop("context")),
            in_json(lambda part, rng: part.update(context="")),
            in_json(lambda part, rng: part.update(context=3)),
            in_json(lambda part, rng: part["qas"][0].pop("question")),
            in_json(lambda part, rng: part["qas"][0].update(question=" ")),
            in_json(lambda part, rng: part["qas"][0].update(answers="red")),
            in_json(lambda part, rng: part.update(qas=3)),
            in_json(lambda part, rng: _answer(part).update(answer_start=rng.randrange(1, 5))),
            in_json(lambda part, rng: _answer(part).update(answer_start="x")),
            in_json(lambda part, rng: _answer(part).update(answer_start=-1)),
            in_json(lambda part, rng: _answer(part).update(answer_start=10**9)),
            in_json(lambda part, rng: _answer(part).pop("text")),
            everywhere(lambda text: "[]"),
            everywhere(lambda text: '{"data": 3}'),
            everywhere(lambda text: "[" * 100_000),
        ),
        ("--model.head.answer_start=strict",),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class SpoiltFile:
    """A labelled file that must be refused, and the seed that spoilt it."""

    form: Format
    way: int
    seed: int

    @property
    def content(self) -> bytes:
        """What the file holds."""
        made = self.form.spoils[self.way](self.form.whole, random.Random(self.seed))
        return made if isinstance(made, bytes) else made.encode()


def spoilt_files() -> st.SearchStrategy[SpoiltFile]:
    """Return labelled files of every format, each spoilt in one way."""
    return st.sampled_from(FORMATS).flatmap(
        lambda form: st.builds(
            SpoiltFile,
            st.just(form),
            st.integers(0, len(form.spoils) - 1),
            st.integers(0, 2**16),
        )
    )


@dataclass(frozen=True)
class Damage:
    """Bytes of a file that are gone or are others."""

    whole: bytes = field(repr=False)
    at: int
    gone: int | None
    new: bytes

    @property
    def content(self) -> bytes:
        """What is left of the file."""
        after = b"" if self.gone is None else self.whole[self.at + self.gone :]
        return self.whole[: self.at] + self.new + after


def damages(whole: bytes) -> st.SearchStrategy[Damage]:
    """Return a file cut short, with other bytes in a place, or with a part of it left out."""
    place = st.integers(0, len(whole) - 1)
    new = st.binary(min_size=1, max_size=8)
    kinds = st.one_of(
        st.builds(Damage, st.just(whole), place, st.none(), st.just(b"")),
        st.builds(lambda at, what: Damage(whole, at, len(what), what), place, new),
        st.builds(Damage, st.just(whole), place, st.integers(1, 64), st.just(b"")),
        st.builds(Damage, st.just(whole), place, st.just(0), new),
    )
    return kinds.filter(lambda damage: damage.content != whole)
