"""The data sources that bertlab brings: the Hugging Face hub, and Python's own English."""

from collections.abc import Iterator

from bertlab.api.examples import DataSource, RawDocument, RawExamples
from bertlab.data.rows.data_sets import load_hub_corpus, raw_rows, read_hub, texts_of_rows
from bertlab.errors import CorpusError
from bertlab.files.reading import is_url
from bertlab.plugins.index import installed, load_class


class HuggingFaceHub(DataSource):
    """Data sets of the Hugging Face hub, by ``datasets``; no code of a data set is run.

    ``hf:NAME[:CONFIG][:SPLIT]`` are documents, a row each; ``hf:NAME`` or ``hf:OWNER/NAME/CONFIG``
    are labelled rows.
    """

    def documents(self) -> Iterator[RawDocument]:
        """Yield the texts of ``text_column``, empty ones as well."""
        raw = raw_rows(load_hub_corpus(self.name), self.name)
        for source, text in texts_of_rows(raw, self.text_column):
            yield RawDocument(text, False, source)

    def fingerprint(self) -> str:
        """Return what ``datasets`` calls the fingerprint."""
        fingerprint: str = load_hub_corpus(self.name)._fingerprint
        return fingerprint

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows, with the class names that the data set declares."""
        return read_hub(self.name, split)


class PythonEnglish(DataSource):
    """The English that ships with Python, offline: ``help()`` topics and docstrings.

    ``python-english`` are documents; ``python-english:packages`` and ``python-english:same_page``
    are labelled rows, which bertlab-tasks brings.
    """

    def documents(self) -> Iterator[RawDocument]:
        """Yield topics and modules, one sentence a line."""
        from bertlab.data.corpus.python_english import python_english_documents  # noqa: PLC0415

        if self.argument:
            raise CorpusError(f"{self.name}: these are labelled rows; the text is python-english")
        for document in python_english_documents():
            yield RawDocument("\n".join(document.sentences), True, document.source)

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows of the task that the argument names."""
        rows = load_class("source", "python-english-rows", DataSource)
        found: RawExamples = rows(self.name, self.argument).raw_examples(split)
        return found


def is_source(location: str) -> bool:
    """Whether a location names an installed source, perhaps with an argument; no URL does."""
    return location.partition(":")[0] in installed("source") and not is_url(location)


def open_source(location: str) -> DataSource:
    """Return the source that a location names."""
    name, _, argument = location.partition(":")
    source: DataSource = load_class("source", name, DataSource)(location, argument)
    return source
