"""``bertlab adapter``: what a run changed of its base, saved alone, and joined with it again."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab import CheckpointError, Command, CommandError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from bertlab.extend import Request


FOLDER = "adapters"  # in that of the base
ENDING = ".adapter"


def no_run(source: str | Path) -> CheckpointError:
    """Return the error for a place where there is no run, checkpoint or adapter."""
    return CheckpointError(f"{source}: no such run or checkpoint of bertlab")


def check_target(base: str | Path, name: str) -> Path:
    """Return the adapter's file; refuse what is no base, or no name of a file: CommandError."""
    if not Path(base).expanduser().is_dir():
        raise CommandError(f"{base}: expected a folder, in which the adapter is written")
    if not name or Path(name).name != name or name.startswith("."):
        raise CommandError(f"--name: found {name!r}, expected the name of a file, such as sst2")
    return Path(base).expanduser() / FOLDER / f"{name}{ENDING}"


class SaveAdapter(Command):
    """Save what a run changed of its base alone; join it again."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab.extend import parse_arguments, say  # noqa: PLC0415

        given = parse_arguments(self.parsers()[""], arguments)
        if given.join is None and (given.base is None or given.name is None):
            raise CommandError("adapter: expected --base FOLDER and --name NAME, or --join FILE")
        if not Path(given.model).exists():
            raise no_run(given.model)
        target = check_target(given.base, given.name) if given.join is None else Path(given.join)
        if target.exists() and not given.overwrite:
            told = f"adapter: {target} exists; choose another name, or replace it"
            raise CommandError(f"{told} by --overwrite true")
        from bertlab_modern.saved_adapters import join_adapter, save_adapter  # noqa: PLC0415  torch

        if given.join is not None:
            join_adapter(Path(given.model), target, given.base)
            say(f"{given.join}: {given.model} with its base")
            return 0
        file = save_adapter(given.model, given.base, given.name)
        say(f"{file}: {file.stat().st_size / 1e6:.1f} MB; bertlab predict {file} uses it")
        return 0

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from jsonargparse import ArgumentParser  # noqa: PLC0415

        parser = ArgumentParser(prog="bertlab adapter", exit_on_error=False)
        parser.add_argument(
            "model", type=str, metavar="MODEL", help="run or checkpoint; with --join an adapter"
        )
        parser.add_argument("--base", type=str | None, help="folder of the model it began with")
        parser.add_argument("--name", type=str | None, help="of the adapter in BASE/adapters")
        parser.add_argument("--join", type=str | None, help="checkpoint to write: both in one")
        parser.add_argument(
            "--overwrite", type=bool, default=False, help="replace the file, if it is there"
        )
        return {"": parser}


class OpenedAdapter:
    """A command that uses an adapter with its base.

    Args:
        command: ``validate``, ``test`` or ``predict``.
        request: whose ``--ckpt_path`` is the adapter.
    """

    def __init__(self, command: str, request: "Request") -> None:
        self.command, self.request = command, request
        self.directory = Path()

    def run(self) -> int:
        """Execute the command; return the exit code."""
        from bertlab.extend import open_command, read_request, split_arguments  # noqa: PLC0415
        from bertlab_modern.saved_adapters import joined  # noqa: PLC0415  torch

        assert self.request.ckpt_path is not None
        rest: list[Any] = [
            token
            for key, _, tokens in split_arguments(self.request.argv)
            if key != "--ckpt_path"
            for token in tokens
        ]
        with joined(Path(self.request.ckpt_path)) as checkpoint:
            again = read_request([*rest, "--ckpt_path", str(checkpoint)])
            return int(open_command(self.command, again).run())
