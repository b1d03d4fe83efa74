"""Writes docs/errors.md from the code.

Usage::

    python docs/make_error_catalogue.py          # after a change to bertlab/errors/catalogue.py
"""

from pathlib import Path

from bertlab.cli.errors import catalogue, meaning

OUTPUT = Path(__file__).parent / "errors.md"
INTRODUCTION = """\
# Errors

(Made from the code by `python docs/make_error_catalogue.py`.)

What a user can mend is one line on standard error: the code, the file and key, what was found, what was
expected, and the nearest valid choice.

    $ bertlab fit --config configs/quickstart.yaml --data.batchsize 8
    bertlab: error E101: data.batchsize: no such key; did you mean 'data.batch_size'?

`bertlab explain E101` prints what stands here. With `BERTLAB_DEBUG=1` the traceback comes in place of the line.

| exit code | what happened |
| ---: | --- |
| 0 | all is well |
| 1 | a bug in bertlab or in a plugin; `bertlab-crash-….txt` in the working directory is the report to send: command, versions and traceback |
| 2 | something to mend, with a code; nothing half-written is left |
| 130 | Ctrl-C; the line names the run that goes on from its last checkpoint |
| 141 | the reader of the output went away, as in <code>bertlab … &#124; head</code> |
| 143 | SIGTERM, as from SLURM; the run saved itself first, between two steps |
| 138 | SIGUSR1 in a job of SLURM: saved as well, and the job queued again |
"""
GROUPS = {
    "1": "Configs, commands and places",
    "2": "Studies",
    "3": "Texts, rows and tokenizers",
    "4": "Checkpoints and models",
    "5": "Plugins",
    "6": "While training",
}


def page() -> str:
    """Return the text of the page."""
    parts = [INTRODUCTION]
    group = ""
    for code, error in catalogue().items():
        if code[1] != group:
            group = code[1]
            parts.append(f"## {GROUPS[group]}\n")
        parts.append(f"### {code}\n")
        parts += [
            f"{paragraph}\n" for paragraph in (*meaning(error), f"*What to do.* {error.remedy}")
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    OUTPUT.write_text(page(), "utf-8")
