"""A fresh environment with all that is installed here, into which plugins can be installed offline.

It is a virtual environment whose ``site-packages`` adds those of this Python. The commands of a
user (``pip``, ``pytest``, ``bertlab``) come first on its ``PATH``, and pip downloads nothing.
"""

import os
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

_COMMANDS = ("pip", "pytest", "bertlab")


@dataclass(frozen=True)
class PluginEnvironment:
    """The environment.

    Attributes:
        folder: of the virtual environment.
        cache: where ``bertlab fit`` keeps what it prepares.
    """

    folder: Path
    cache: Path

    @classmethod
    def create(cls, folder: Path) -> "PluginEnvironment":
        """Make it."""
        place = folder / "environment"
        venv.create(place, symlinks=True)
        site = Path(sysconfig.get_path("purelib", "venv", {"base": str(place)}))
        here = sysconfig.get_path("purelib")
        (site / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
        for command in _COMMANDS:
            script = place / "bin" / command
            script.write_text(f'#!/bin/sh\nexec "{place}/bin/python" -m {command} "$@"\n')
            script.chmod(0o755)
        return cls(place, folder / "cache")

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a line of shell in a folder; both streams are ``stdout``."""
        settings = {
            "BERTLAB_CACHE": str(self.cache),
            "HF_HUB_OFFLINE": "1",
            "MPLBACKEND": "agg",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say: do not isolate
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=folder,
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def expect(self, command: str, folder: Path) -> str:
        """Run a line of shell that succeeds; return what it printed."""
        done = self.run(command, folder)
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout
