"""``bertlab demo``: a page on this machine to try a model, and to look inside it."""

from pathlib import Path

from jsonargparse import ArgumentParser

from bertlab.extend import check_model, parse_arguments, working
from bertlab_pages.local_server import listen


def main(command: str, argv: list[str]) -> int:
    """Run ``demo`` until Ctrl-C; return the exit code."""
    given = parse_arguments(make_parser(command), argv)
    check_model(given.model)
    listen(given.port).close()  # before the model is read
    from bertlab import load  # noqa: PLC0415  torch, not for --help
    from bertlab_pages.demo.model_view import ModelView, name_of  # noqa: PLC0415
    from bertlab_pages.demo.server import new_server  # noqa: PLC0415
    from bertlab_pages.local_server import serve  # noqa: PLC0415

    with working(f"reading {Path(given.model).name}"):
        view = ModelView(load(given.model, given.head), name_of(given.model))
    serve(new_server(view, given.port), given.model)
    return 0


def make_parser(command: str) -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.add_argument(
        "model",
        type=str,
        metavar="MODEL",
        help="run directory, checkpoint, Hugging Face folder or hub name",
    )
    parser.add_argument(
        "--head", type=str | None, default=None, help="the head to try, of a run with several"
    )
    parser.add_argument("--port", type=int, default=8000, help="on this machine; 0: a free one")
    return parser
