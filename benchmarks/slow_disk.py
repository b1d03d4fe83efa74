"""Run a command whose temporary folder is on a disk that writes slowly.

    python benchmarks/slow_disk.py --mb_per_second 2 -- python benchmarks/fit_kills.py pretrain

The disk is a file with ext4 on a loop device, of which the kernel lets so many bytes a second
through (``blkio.throttle`` of control groups, version 1); it is made and taken away as root. Exit
code: the command's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")


def main() -> int:
    """Make the disk, run the command, take the disk away."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb_per_second", type=float, default=2)
    parser.add_argument("--size_mb", type=int, default=4096)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    if not _THROTTLE.is_file():
        raise SystemExit(f"{_THROTTLE} is not there; it takes control groups of version 1")
    with slow_disk(int(given.mb_per_second * 2**20), given.size_mb) as folder:
        environment = os.environ | {"TMPDIR": str(folder)}
        return subprocess.run(given.command, env=environment, check=False).returncode


@contextmanager
def slow_disk(bytes_per_second: int, megabytes: int) -> Iterator[Path]:
    """Mount a disk that writes so many bytes a second; yield where it is."""
    folder = Path(tempfile.mkdtemp(prefix="slow-disk-"))
    image, place = folder / "image", folder / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes * 2**20)
    run("mkfs.ext4", "-q", image)
    device = run("losetup", "--show", "-f", image)
    number = Path("/sys/block", Path(device).name, "dev").read_text().strip()
    try:
        run("mount", device, place)
        _THROTTLE.write_text(f"{number} {bytes_per_second}")
        yield place
    finally:
        _THROTTLE.write_text(f"{number} 0")  # first, or unmounting waits for what is not written
        run("umount", place)
        run("losetup", "-d", device)
        shutil.rmtree(folder)


def run(*command: str | Path) -> str:
    """Run a command that must not fail; return what it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
