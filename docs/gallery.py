"""Draws pages of bertlab in three widths beside each other, for the gallery of the docs.

Usage, with Chromium installed::

    python docs/gallery.py run-page runs/quickstart/run.html
    python docs/gallery.py demo http://127.0.0.1:8000

It writes ``docs/images/gallery-NAME.webp``. Pages are 390, 768 and 1280 pixels wide.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

IMAGES = Path(__file__).parent / "images"
WIDTHS, HEIGHT, GAP, AROUND = (390, 768, 1280), 1500, 24, "#8a8f98"


def draw(name: str, address: str) -> Path:
    """Return the picture of a page, given by its file or its address."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("gallery.py: expected Chromium on PATH")
    if "://" not in address:
        address = Path(address).resolve(strict=True).as_uri()
    target = IMAGES / f"gallery-{name}.webp"
    with tempfile.TemporaryDirectory() as folder:
        # each width on its own: the demo is shown in no page's frame
        pages = [_page(browser, address, width, Path(folder)) for width in WIDTHS]
    height = max(map(_content_height, pages))
    size = sum(WIDTHS) + GAP * (len(WIDTHS) + 1), height + 2 * GAP
    whole, left = Image.new("RGB", size, AROUND), GAP
    for page in pages:
        whole.paste(page.crop((0, 0, page.width, height)), (left, GAP))
        left += page.width + GAP
    whole.save(target, quality=70, method=6)
    return target


def _page(browser: str, address: str, width: int, folder: Path) -> Image.Image:
    """Return what the browser shows of a page."""
    file = folder / f"{width}.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += ["--allow-file-access-from-files", "--virtual-time-budget=8000"]
    options += [f"--window-size={width},{HEIGHT}", f"--screenshot={file}", address]
    subprocess.run([browser, *options], check=True, capture_output=True)  # noqa: S603
    with Image.open(file) as opened:
        return opened.convert("RGB")


def _content_height(page: Image.Image) -> int:
    """Return the height of a page without the empty rows at its end."""
    empty = Image.new("RGB", page.size, page.getpixel((0, page.height - 1)))
    found = ImageChops.difference(page, empty).getbbox()
    return page.height if found is None else min(page.height, found[3] + GAP)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python docs/gallery.py NAME PAGE")
    print(draw(*sys.argv[1:]))
