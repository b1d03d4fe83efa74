"""Read thousands of files as people have them, and compare with csv, json, pandas and pyarrow.

    python benchmarks/realistic_files.py                       # 3,000 files, seeds 0 to 2,999
    python benchmarks/realistic_files.py --files 500 --seed 9000 --show refused

Every file is right (rows, labels and counts are the oracle's), refused as it should be, refused
though nothing is wrong with it (too strict), or wrong: read otherwise and not refused, a crash, or
a message that names neither place nor setting. Exit code 1 if one is wrong.
"""

import argparse
import os
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the tests' grammar

from tests.reliability.realistic_files import draw
from tests.reliability.realistic_rows import verdict


def main() -> int:
    """Draw, read and count."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--files", type=int, default=3000)
    arguments.add_argument("--seed", type=int, default=0, help="of the first file")
    arguments.add_argument("--show", default="", help="print a message of each kind: refused, …")
    arguments.add_argument("--keep", type=Path, help="folder for the files that are wrong")
    given = arguments.parse_args()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    shown = set()
    for seed in range(given.seed, given.seed + given.files):
        with tempfile.TemporaryDirectory() as folder:
            case = draw(seed, Path(folder))
            found = verdict(case)
            counts[case.kind][found.name] += 1
            is_new = (case.kind, found.name) not in shown
            if found.name == "wrong" or (found.name == given.show and is_new):
                reason = found.reason.replace(folder + os.sep, "")
                print(f"seed {seed}: {case.kind}: {found.name}: {reason}")
                shown.add((case.kind, found.name))
            if found.name == "wrong" and given.keep:
                given.keep.mkdir(exist_ok=True)
                (given.keep / f"{seed} {case.path.name}").write_bytes(case.path.read_bytes())
    total = Counter[str]()
    for kind in sorted(counts):
        print(f"{kind:48} " + ", ".join(f"{n} {name}" for name, n in counts[kind].items()))
        total += counts[kind]
    last = given.seed + given.files - 1
    print(
        f"seeds {given.seed} to {last}: " + ", ".join(f"{n:,} {name}" for name, n in total.items())
    )
    return int(total["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
