"""Lines of UTF-8 files, packed or not: the one way in which text enters bertlab; plain text."""

import bz2
import codecs
import errno
import gzip
import io
import lzma
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import chain
from pathlib import Path, PurePath
from shutil import copyfileobj
from typing import IO, Any, Literal, cast

from bertlab.api.examples import Column, RawExamples, holds_no_examples
from bertlab.data.sources import File, located, open_file
from bertlab.errors import BertlabError, CorpusError, DataError
from bertlab.files import check_memory

Errors = Literal["strict", "replace"]
_held: ContextVar[list[int] | None] = ContextVar("held", default=None)

BLOCK = 2**20
"""Bytes decoded at a time."""

MAX_LINE = 2**20
"""Characters; a longer line of a text is cut at a space and read as several."""

STANDARD_INPUT = "-"
PACKED = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".lzma": "xz", ".zst": "zstd", ".zip": "zip"}
"""Endings of packed files that are read, and the program that packs them."""

_ARCHIVES = (".tar", ".tgz", ".tbz2", ".txz", ".tzst", ".7z", ".rar", ".lz4", ".br", ".z")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
BYTES_OF_ROW = 1000  # of memory: an Example, and its sequence before it is packed
COPIES = 8  # bytes for a character, as what reads rows makes copies of a line
PIECE = 2**16  # characters of a line in which the items of a JSON array are looked for
_XZ_MEMORY = 2**28  # bytes: four times what xz -9 needs
_MOST_NAMED = 4

_DISGUISES = {
    b"\x1f\x8b": "it looks like gzip, whose name must end in .gz",
    b"BZh": "it looks like bzip2, whose name must end in .bz2",
    b"\xfd7zXZ": "it looks like xz, whose name must end in .xz",
    b"\x28\xb5\x2f\xfd": "it looks like zstd, whose name must end in .zst",
    b"\xff\xfe": "it looks like UTF-16, convert it to UTF-8",
    b"\xfe\xff": "it looks like UTF-16, convert it to UTF-8",
    b"PK\x03\x04": "it looks like a zip file or an office document: unpack it, or save it as text",
    b"PAR1": "it looks like Parquet, whose name must end in .parquet",
    b"%PDF": "it looks like a PDF file, expected its text",
}


@contextmanager
def holding() -> Iterator[None]:
    """Bound the memory that readers :func:`hold` in this block, which keeps all rows."""
    before = _held.set([0, 0])
    try:
        yield
    finally:
        _held.reset(before)


def hold(place: object, size: int, stored: int = 0) -> None:
    """Count memory of rows just read from so many bytes of a file, if somebody keeps them all."""
    if held := _held.get():
        held[:] = held[0] + size, held[1] + stored
        check_memory(place, "with all that was read before it", *held)


def ending(name: str) -> str:
    """Return the ending of a name in lower case, without that of a packer: .csv of A.CSV.gz."""
    path = PurePath(name.lower())
    return PurePath(path.stem).suffix if path.suffix in PACKED else path.suffix


def content_ending(path: File) -> str:
    """Return the ending of what a file holds: of a zip without another ending, its one file's."""
    found = ending(path.name)
    if found or not isinstance(path, Path) or path.suffix.lower() != ".zip":
        return found
    with explain_failed_read(str(path), DataError), open_unpacked(path) as member:
        return PurePath(cast("zipfile.ZipExtFile", member).name.lower()).suffix


def is_packed(path: str | File) -> bool:
    """Return whether a file is packed, by its name: few of its bytes may stand for many."""
    return PurePath(str(path).lower()).suffix in PACKED


def unreadable_kind(name: str) -> str | None:
    """Return what is wrong with a file that holds no text by its name; None if it may."""
    if (kind := ending(name)) in SPREADSHEETS:
        return "is a spreadsheet, expected a table as text; save it as CSV"
    if kind in _ARCHIVES:
        return f"is an archive; unpack it, or pack the file alone as {', '.join(PACKED)}"
    return None


def input_name(path: str | File) -> str:
    """Return the name of a path in messages: ``standard input`` for ``-``."""
    return "standard input" if path == STANDARD_INPUT else str(path)


@contextmanager
def open_unpacked(path: File) -> Iterator[IO[bytes]]:
    """Open a file for reading; what its ending calls packed is unpacked on the fly."""
    kind = PACKED.get(PurePath(path.name).suffix.lower())
    if kind is not None and isinstance(path, Path) and path.is_fifo():
        raise OSError(errno.EINVAL, f"is a pipe, expected a {kind} file", str(path))
    with open_file(path) as file:
        if kind is None:
            yield file
            return
        with _unpacked(file, kind, path) as stream:
            yield stream


def _unpacked(file: IO[bytes], kind: str, path: File) -> IO[bytes]:
    match kind:
        case "gzip":
            return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        case "bzip2":
            return cast("IO[bytes]", bz2.BZ2File(file))
        case "xz":
            return cast(
                "IO[bytes]", io.BufferedReader(cast("io.RawIOBase", _XzStream(file)), BLOCK)
            )
        case "zip":
            return _open_zip(file, path)
    import pyarrow as pa  # noqa: PLC0415  has zstd, which Python has not before 3.14

    return cast("IO[bytes]", pa.CompressedInputStream(file, kind))


class _XzStream(io.RawIOBase):
    """Unpacks xz within a bound of memory, which ``lzma.open`` does not take."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._unpack = file, lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        content = b""
        while not content:
            packed = b""
            if self._unpack.eof:  # another stream may follow, behind padding
                packed = (self._unpack.unused_data or self._file.read(BLOCK)).lstrip(b"\0")
                if not packed:
                    return 0
                self._unpack = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
            elif self._unpack.needs_input and not (packed := self._file.read(BLOCK)):
                raise EOFError("it ends before its end-of-stream marker")
            content = self._unpack.decompress(packed, len(buffer))
        buffer[: len(content)] = content
        return len(content)


def _open_zip(file: IO[bytes], path: File) -> IO[bytes]:
    if not file.seekable():  # its list of files stands at the end
        copied = tempfile.TemporaryFile()  # noqa: SIM115  closed with the archive
        copyfileobj(file, copied)
        file = cast("IO[bytes]", copied)
    archive = zipfile.ZipFile(file)
    names = [
        each.filename
        for each in archive.infolist()
        if not each.is_dir() and not each.filename.startswith(("__MACOSX/", "."))
    ]
    if len(names) != 1:
        shown = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
        raise OSError(
            errno.EINVAL,
            f"is an archive of {len(names)} files ({shown}), expected one; unpack it",
            str(path),
        )
    try:
        return archive.open(names[0])
    except (RuntimeError, NotImplementedError) as error:  # a password, a rare compression
        raise OSError(errno.EINVAL, f"{names[0]} in it cannot be unpacked: {error}") from None


# what unpacking raises, beside an OSError without a number
DAMAGED_PACKED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@contextmanager
def explain_failed_read(name: str, error_class: type[BertlabError]) -> Iterator[None]:
    """Re-raise errors of opening, reading and unpacking a file as errors of bertlab's."""
    kind = PACKED.get(PurePath(name.lower()).suffix)
    try:
        yield
    except DAMAGED_PACKED as error:
        raise _damaged(name, kind, error, error_class) from None
    except OSError as error:
        if kind is not None and error.errno is None:  # bz2's and zstd's
            raise _damaged(name, kind, error, error_class) from None
        raise error_class(f"{name}: cannot be read: {error.strerror or error}") from None


def _damaged(
    name: str, kind: str | None, error: Exception, error_class: type[BertlabError]
) -> BertlabError:
    check = "unzip" if kind == "zip" else kind
    return error_class(
        f"{name}: damaged {kind} file ({error}); "
        f"copy or pack the file again (check with: {check} -t {name})"
    )


def read_lines(
    path: str | File,
    errors: Errors | None = None,
    max_line: int | None = None,
    on_block: Callable[[str], object] | None = None,
) -> Iterator[str]:
    """Yield the lines of a file as they are read, without their ends (LF, CR LF or CR).

    A byte order mark is dropped. Memory holds a block and a line.

    Args:
        path: of the file; ``-`` is standard input.
        errors: what a corpus does about bytes that are not UTF-8; None of labelled rows, which are
            refused as DataError.
        max_line: characters from which on a line is cut, at a space: for texts. None for rows, of
            which half a line is nothing; they may not hold NUL either.
        on_block: is given the text of each block before its lines are yielded.
    """
    pending: list[str] = []
    number = size = 0
    for text in _decoded_blocks(path, errors, is_rows=max_line is None):
        first, *rest = text.split("\n")  # "b\nc\nd" after "a" -> lines "ab" and "c"; "d" waits
        pending.append(first)
        size += len(first)
        if on_block is not None:
            on_block(text)
        if max_line is None and size > BLOCK:
            taken = COPIES * (sum(map(sys.getsizeof, pending)) if is_packed(path) else size)
            check_memory(f"{input_name(path)}:{number + 1}", "this line", taken)
        if rest:
            yield "".join(pending)
            yield from rest[:-1]
            number += len(rest)
            pending, size = [rest[-1]], len(rest[-1])
        if max_line is not None and size > max_line:
            line = "".join(pending)
            # from 1 on, as what is left of the last cut begins with a space
            cut = line.rfind(" ", 1) if " " in line[1:] else len(line)
            yield line[:cut]
            pending, size = [line[cut:]], len(line) - cut
    if size:
        yield "".join(pending)


def in_pieces(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines in pieces of bounded length, with what parts them."""
    for number, line in enumerate(lines):
        text = f"\n{line}" if number else line
        for start in range(0, len(text) or 1, PIECE):
            yield text[start : start + PIECE]


def _open(path: str | File) -> AbstractContextManager[IO[bytes]]:
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    return open_unpacked(located(path) if isinstance(path, str) else path)


def _decoded_blocks(path: str | File, errors: Errors | None, is_rows: bool) -> Iterator[str]:
    """Yield the text of a file in blocks, line ends translated, byte order mark dropped."""
    name, error_class = input_name(path), DataError if errors is None else CorpusError
    utf8 = codecs.getincrementaldecoder("utf-8")(errors or "strict")
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    packed, offset, lines = is_packed(path), 0, 0
    with explain_failed_read(name, error_class), _open(path) as file:
        place = located(path) if isinstance(path, str) else path
        is_local = isinstance(place, Path)  # another counts its bytes as they come
        if packed and isinstance(place, Path):
            hold(name, 0, place.stat().st_size)
        # of a pipe, what there is: whoever types wants to see
        read = file.read if packed else file.read1  # type: ignore[attr-defined]
        while True:
            block = read(BLOCK)
            held = len(utf8.getstate()[0])  # bytes of a character that goes on in this block
            try:
                text, wrong = decoder.decode(block, final=not block), None
            except UnicodeDecodeError as error:
                # what stands before the bad byte is read first
                text, wrong = decoder.decode(block[: max(0, error.start - held)]), error
            text = text.removeprefix("\ufeff") if offset == 0 else text
            breaks = text.count("\n")
            taken = 2 * sys.getsizeof(text) + BYTES_OF_ROW * breaks
            hold(name, taken, len(block) if is_local and not packed else 0)
            if is_rows and b"\0" in block and "\0" in text:
                text = text[: text.index("\0")]
                yield text
                lines += text.count("\n")
                raise error_class(
                    f"{name}:{lines + 1}: holds a NUL byte at byte offset "
                    f"{offset + block.index(0)}, which no text does; the file is damaged, binary "
                    "or not UTF-8"
                )
            yield text
            lines += breaks
            if wrong is not None:
                where = f"{name}:{lines + 1}"
                raise error_class(_not_utf8(name, where, wrong, offset - held, errors))
            if not block:
                return
            offset += len(block)


def _not_utf8(
    name: str, where: str, error: UnicodeDecodeError, offset: int, errors: Errors | None
) -> str:
    """Return the message about bytes that are not UTF-8; they were read from ``offset`` on."""
    unpacked = " of the unpacked text" if PurePath(name.lower()).suffix in PACKED else ""
    advice = "convert the file to UTF-8"
    if errors is not None:
        advice = (
            "convert the file, or continue with U+FFFD in place of such bytes: "
            "--errors replace, or data.errors: replace"
        )
    if offset == 0:
        start = error.object
        advice = next(
            (what for magic, what in _DISGUISES.items() if start.startswith(magic)), advice
        )
    return (
        f"{where}: not UTF-8 at byte offset {offset + error.start}{unpacked} "
        f"(found 0x{error.object[error.start]:02x}: {error.reason}); {advice}"
    )


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 1, without the empty lines at the end of the file."""
    # "a", "", "b", "" -> (1, "a"), (2, ""), (3, "b")
    filled = 0
    for number, line in enumerate(lines, 1):
        if line:
            yield from ((empty, "") for empty in range(filled + 1, number))
            filled = number
            yield number, line


def words_of(text: str) -> list[str]:
    """Return the words of a text as BERT's tokenizer parts them: at spaces and punctuation."""
    from tokenizers.pre_tokenizers import BertPreTokenizer  # noqa: PLC0415  not for corpora

    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(text)]


def read_text(path: str, wanted: Sequence[Column], is_parted: bool = False) -> RawExamples:
    """Read new text without truth: a row a line.

    The line is the text. Several texts are separated by tabs, in the head's order. Where the head
    reads words, they are those of :func:`words_of`, and the line stays as ``text``.
    """
    name = input_name(path)
    needed = [column for column in wanted if column.required and not column.is_truth]
    columns = tuple(column.name for column in needed)
    if any(column.kind not in ("text", "texts") for column in needed) or (
        len(needed) != 1 and any(column.kind != "text" for column in needed)
    ):
        told = f"{name}: plain text cannot hold what is read here ({', '.join(columns)})"
        raise DataError(f"{told}; give JSON lines (.jsonl) with these keys")
    lines = numbered(read_lines(path))
    first = next(lines, None)
    if first is None:
        raise holds_no_examples(name)

    def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, line in chain([first], lines):
            where = f"{name}:{number}"
            if needed[0].kind == "texts":
                words = line.split() if is_parted else words_of(line)
                yield where, {columns[0]: words, "text": line}
                continue
            cells = [line] if len(needed) == 1 else line.split("\t")
            if len(cells) != len(needed):
                told = f"{where}: found {len(cells)} tab-separated text{'s'[: len(cells) != 1]}"
                raise DataError(f"{told}, expected {len(needed)}: {', '.join(columns)}")
            yield where, dict(zip(columns, cells, strict=True))

    return RawExamples(name, columns, rows())
