"""``bertlab fit``, ``validate``, ``test`` and ``predict``."""

from bertlab.cli.fit_help import asks_for_help, short_help, without_all
from bertlab.config.merge import read_request
from bertlab.config.request import Request
from bertlab.config.shipped import with_config_options
from bertlab.errors import CommandError, say
from bertlab.plugins.hooks import run_elsewhere

# of keys below data, for predict
_SHORT = ("--text", "--text_pair", "--input", "--input_format")


def main(command: str, argv: list[str]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; return the exit code."""
    argv = with_config_options(argv)
    if command == "predict":
        argv = [_long_name(each) for each in argv]
    if asks_for_help(argv):
        say(short_help(command, read_request(argv)))
        return 0
    argv = without_all(argv)
    if any(each.partition("=")[0] == "--print_config" for each in argv):
        return print_config(command, argv)
    request = read_request(argv)
    if command == "fit" and (code := run_elsewhere(argv, _keys(request))) is not None:
        return code
    # torch, not for --help
    from bertlab.training.cli import open_command  # noqa: PLC0415
    from bertlab.training.stages import open_fit  # noqa: PLC0415

    if command == "fit":
        return open_fit(request).run()
    return open_command(command, request).run()


def print_config(command: str, argv: list[str]) -> int:
    """Print the config that arguments with ``--print_config`` stand for; run nothing."""
    from bertlab.checkpoints.restore import read_warm_start  # noqa: PLC0415  torch, rare
    from bertlab.config.printing import OPTION, printed_config, take_print_option  # noqa: PLC0415

    form, rest = take_print_option(argv)
    request = read_request(rest)
    if command != "fit" or request.ckpt_path is not None:
        raise CommandError(
            f"{OPTION}: expected bertlab fit without --ckpt_path; the config of a run that was "
            "begun is config.yaml in its directory"
        )
    assert form is not None
    warm = read_warm_start(request)
    if warm is not None:
        request.take_sizes(warm.encoder_config)
    say(printed_config(request, form))
    return 0


def _long_name(argument: str) -> str:
    """Return ``--data.input=x`` for ``--input=x``; what has no short name stays."""
    key, equals, value = argument.partition("=")
    return f"--data.{key[2:]}{equals}{value}" if key in _SHORT else argument


def _keys(request: Request) -> frozenset[str]:
    """Return the first parts of the keys that arguments and config files give."""
    given = {key for _, content in request.files for key in content}
    # --model.init_from=x -> model
    names = [argument.removeprefix("--").partition("=")[0] for argument in request.argv]
    return frozenset(given | {name.partition(".")[0] for name in names})
