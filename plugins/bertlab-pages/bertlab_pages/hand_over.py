"""``bertlab export`` and :meth:`bertlab.Run.export`: a model for others, on disk and on the hub."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertlab.checkpoints.export import ExportForm, ExportReport, export_model
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_checkpoint import words_checkpoints
from bertlab.errors import CommandError, OutputError
from bertlab.files import write_text
from bertlab.training.loading_code import Address
from bertlab_interop.onnx_file import export_onnx
from bertlab_pages.model_card import model_card

CARD = "README.md"


@dataclass(frozen=True)
class Repository:
    """A model repository of the Hugging Face hub, for :func:`push`.

    Attributes:
        name: ``USER/NAME``.
        private: make a new one that only its owner sees; one that is there stays as it is.

    Raises:
        CommandError: the hub has no such names.
    """

    name: str
    private: bool = False

    def __post_init__(self) -> None:
        from huggingface_hub.errors import HFValidationError  # noqa: PLC0415  slow
        from huggingface_hub.utils._validators import validate_repo_id  # noqa: PLC0415

        try:
            validate_repo_id(self.name)
            reason = "" if "/" in self.name else "it names no user or organisation"
        except HFValidationError as error:
            reason = str(error).splitlines()[0]
        if reason:  # the hub would complete a bare name, but the card would not know how
            raise CommandError(
                f"--push: found {self.name!r}, expected USER/NAME of a repository: {reason}"
            )


def hand_over(
    source: str,
    output: Path,
    overwrite: bool = False,
    address: Address | None = None,
    form: ExportForm = "transformers",
    head: str | None = None,
) -> ExportReport:
    """Write a model with its card as a folder that others load.

    Args:
        source: a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name.
        output: folder to write.
        overwrite: replace what is there.
        address: by which the card says that the model is loaded; the folder's name if not given.
        form: what to write: a folder for ``transformers``, one for ``sentence-transformers``, which
            takes the mean over tokens, or one ONNX file.
        head: the one of several heads that is written.

    Raises:
        CheckpointError: as :func:`bertlab.checkpoints.export.export_model`, or there is no such
            form of the encoder.
        CommandError: a package that the form needs is not installed, or several heads need one to
            be named.
        DamagedRecordError: the manifest or the results of the run are damaged.
    """
    place = address or Address(output.absolute().name)

    def add_card(folder: Path, start: Pretrained, report: ExportReport) -> None:
        write_text(folder / CARD, model_card(start, report, place).text())

    if form == "onnx":
        return export_onnx(source, output, overwrite, [add_card], head)
    return export_model(source, output, overwrite, [add_card], form, head)


def hand_over_words(
    run: str,
    output: Path,
    overwrite: bool = False,
    repository: str | None = None,
    form: ExportForm = "transformers",
) -> Iterator[ExportReport]:
    """Write each ``words-….ckpt`` of a run into a folder below ``output``, called as BabyLM does.

    Args:
        run: run directory, or the folder of its checkpoints.
        output: folder of the folders ``chck_1M``, ``chck_2M``, …
        overwrite: replace what is there.
        repository: of the hub, whose revisions have the names of the folders; for the cards.
        form: as for :func:`hand_over`.

    Yields:
        What was written, one model at a time.
    """
    for file in words_checkpoints(run).values():
        revision = file.stem.replace("words-", "chck_")  # words-1M.ckpt -> chck_1M
        address = None if repository is None else Address(repository, revision, on_hub=True)
        yield hand_over(str(file), output / revision, overwrite, address, form)


def push(folder: Path, repository: Repository, revision: str | None = None) -> str:
    """Upload an export to the hub, as the account that ``hf auth login`` or ``HF_TOKEN`` gives.

    Args:
        folder: the export.
        repository: made if need be.
        revision: branch, made if need be; the main one if not given.

    Returns:
        The address of the commit.

    Raises:
        OutputError: the hub cannot be reached, or refuses; the folder stays.
    """
    from huggingface_hub import HfApi  # noqa: PLC0415  slow

    api, name = HfApi(), repository.name
    try:
        api.create_repo(name, private=repository.private or None, exist_ok=True)
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            revision=revision,
            commit_message="Upload by bertlab export",
        )
    except Exception as error:  # also of its HTTP library, which is not the same in all versions
        lines = str(error).strip().splitlines() or [type(error).__name__]
        branch = "" if revision is None else f" --revision {revision}"
        raise OutputError(
            f"{folder}: written, but not pushed to {name}: {lines[0]}; log in by `hf auth login` "
            f"where there is a network, then: hf upload {name} {folder}{branch}"
        ) from None
    return str(commit.commit_url)
