"""Lets ``python -m fake_fit`` find the made-up fit, in whatever process it is started."""

import os
from pathlib import Path

os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)
