"""Draws pages of bertlab in three widths beside each other, for the gallery of the docs.

Usage, with Chromium installed::

    python docs/gallery.py run-page runs/quickstart/run.html
    python docs/gallery.py demo http://127.0.0.1:8000

It writes ``docs/images/gallery-NAME.webp``. Frames are 390, 768 and 1280 pixels wide.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

IMAGES = Path(__file__).parent / "images"
WIDTHS, HEIGHT, GAP = (390, 768, 1280), 1500, 24


def draw(name: str, address: str) -> Path:
    """Return the picture of a page, given by its file or its address."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("gallery.py: expected Chromium on PATH")
    if "://" not in address:
        address = Path(address).resolve(strict=True).as_uri()
    frames = "".join(
        f'<iframe src="{address}" style="width: {width}px; height: {HEIGHT}px"></iframe>'
        for width in WIDTHS
    )
    look = f"body {{ display: flex; gap: {GAP}px; margin: {GAP}px; background: #8a8f98 }}"
    look += "iframe { border: 0; flex: none; background: white }"
    size = f"{sum(WIDTHS) + GAP * (len(WIDTHS) + 1)},{HEIGHT + 2 * GAP}"
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder) / "frames.html", Path(folder) / "frames.png"
        page.write_text(f"<!doctype html><style>{look}</style>{frames}", "utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--allow-file-access-from-files", "--virtual-time-budget=8000"]
        options += [f"--window-size={size}", f"--screenshot={picture}", page.as_uri()]
        subprocess.run([browser, *options], check=True, capture_output=True)  # noqa: S603
        target = IMAGES / f"gallery-{name}.webp"
        with Image.open(picture) as opened:
            opened.convert("RGB").save(target, quality=70, method=6)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python docs/gallery.py NAME PAGE")
    print(draw(*sys.argv[1:]))
