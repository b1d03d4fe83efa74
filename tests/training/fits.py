"""Run several commands in one process, or in the two that the first of them starts."""

import sys
from pathlib import Path

from bertlab.cli.main import main

if __name__ == "__main__":
    # a command a line, its arguments between tabs
    for line in Path(sys.argv[1]).read_text("utf-8").splitlines():
        if code := main(line.split("\t")):
            sys.exit(code)
