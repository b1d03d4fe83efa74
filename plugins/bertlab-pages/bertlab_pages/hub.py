"""Uploads of exports to the Hugging Face hub."""

from dataclasses import dataclass
from pathlib import Path

from bertlab import CommandError
from bertlab.extend import OutputError


@dataclass(frozen=True)
class Repository:
    """A model repository of the Hugging Face hub.

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

    def push(self, folder: Path, revision: str | None = None) -> str:
        """Upload an export, as the account that ``hf auth login`` or ``HF_TOKEN`` gives.

        Args:
            folder: the export.
            revision: branch, made if need be; the main one if not given.

        Returns:
            The address of the commit.

        Raises:
            OutputError: the hub cannot be reached, or refuses; the folder stays.
        """
        from huggingface_hub import HfApi  # noqa: PLC0415  slow

        api = HfApi()
        try:
            api.create_repo(self.name, private=self.private or None, exist_ok=True)
            if revision is not None:
                api.create_branch(self.name, branch=revision, exist_ok=True)
            commit = api.upload_folder(
                repo_id=self.name,
                folder_path=folder,
                revision=revision,
                commit_message="Upload by bertlab export",
            )
        except Exception as error:  # of its HTTP library too, which differs between versions
            again = f"hf upload {self.name} {folder}"
            again += "" if revision is None else f" --revision {revision}"
            raise OutputError(
                f"{folder}: written, but not pushed to {self.name}: {_reason(error)}; log in by "
                f"`hf auth login` where there is a network, then: {again}"
            ) from None
        return str(commit.commit_url)


def _reason(error: Exception) -> str:
    """Return why the hub did not take it, in our words: its own may hold anything."""
    from huggingface_hub.errors import OfflineModeIsEnabled  # noqa: PLC0415  slow

    if isinstance(error, OfflineModeIsEnabled):
        return "offline mode is on (HF_HUB_OFFLINE)"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None:
        return f"it could not be reached ({type(error).__name__})"
    meaning = {401: "you are not logged in", 403: "your account may not write there"}.get(status)
    return f"it answered with status {status:d}" + ("" if meaning is None else f": {meaning}")
