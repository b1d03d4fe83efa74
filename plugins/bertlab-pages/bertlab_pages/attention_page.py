"""The page of attention maps: one HTML file that needs no other and works offline.

Texts of rows are data on it and never code: the template escapes what it prints, the script sets
text alone, and the page's policy lets nothing run but that script, whose hash it names.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from torch import Tensor

_LEVELS = 100  # of a weight on the page: two decimals


@dataclass(frozen=True)
class ShownRow:
    """A row on the page.

    Attributes:
        where: file and line.
        tokens: S texts.
        weights: ``(layers, heads, S, S)`` uint8, hundredths.
        figures: ``(F, layers, heads)`` float64 of this row.
    """

    where: str
    tokens: Sequence[str]
    weights: npt.NDArray[np.uint8]
    figures: npt.NDArray[np.float64]


def rounded_weights(maps: Tensor) -> npt.NDArray[np.uint8]:
    """Return probabilities of any shape as hundredths: 0.256 is 26."""
    weights: npt.NDArray[np.uint8] = (maps * _LEVELS).round().byte().cpu().numpy()
    return weights


def attention_page(source: str, figures: Sequence[str], rows: Sequence[ShownRow]) -> str:
    """Return an HTML page that shows the maps of some rows, one head large and all heads small.

    Args:
        source: of the model, for the title.
        figures: names of the F figures of each head.
        rows: at least one; all have as many layers and heads.
    """
    layers, heads = rows[0].weights.shape[:2]
    content = {
        "layers": layers,
        "heads": heads,
        "figures": list(figures),
        "rows": [
            {
                "where": row.where,
                "tokens": list(row.tokens),
                "weights": base64.b64encode(row.weights.tobytes()).decode("ascii"),
                "figures": np.round(row.figures, 3).tolist(),
            }
            for row in rows
        ],
    }
    environment = Environment(
        loader=PackageLoader("bertlab_pages"), autoescape=True, undefined=StrictUndefined
    )
    script = _file("attention.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template("attention.html").render(
        source=source,
        content=content,
        style=Markup(_file("attention.css")),  # noqa: S704  ours
        script=Markup(script),  # noqa: S704  ours
        digest=Markup(digest),  # noqa: S704  + and / of base64 have no meaning in HTML
    )


def _file(name: str) -> str:
    return (resources.files("bertlab_pages") / "templates" / name).read_text("utf-8")
