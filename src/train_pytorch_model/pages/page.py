"""Self-contained HTML pages: single files that open anywhere, without a network.

File and category names are untrusted: the templates escape them, and the Content-Security-Policy of a page
forbids it to load anything or to run any script but ours. `templates/parts.html` holds the shared macros.
"""

import base64
import hashlib
import io
import re
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from train_pytorch_model import __version__
from train_pytorch_model.image_classifier.decoding import AS_USUAL, Colours, UnreadableImageError, decode
from train_pytorch_model.measures.time_budget import duration
from train_pytorch_model.words.wording import counted

MAX_NAME = 100  # characters; longer names are truncated
BETWEEN_WORDS = re.compile(r"(?<=[/\\_+,=&@-])")  # where a name may be broken, besides at spaces
THUMBNAIL_SIDE = 160  # px
THUMBNAIL_QUALITY = 75
HEAT_SIDE = 32  # px; browsers smooth it
HEAT_LEVELS = 16
HEAT_COLOUR = (255, 0, 170)  # which photographs hardly have
MAX_HEAT = 0.75  # opacity: the picture can still be recognized


def render_page(template: str, **values: object) -> str:
    """Render a template that extends `page.html`."""
    environment = Environment(
        loader=PackageLoader("train_pytorch_model.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shorten": shorten, "breakable": breakable}
    environment.globals |= {"counted": counted, "duration": duration}
    script = environment.get_template("page.js").render()
    page = environment.get_template(template).render(
        version=__version__,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )
    # A file name that is not valid UTF-8 holds lone surrogates, which cannot be encoded.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def shorten(name: str) -> str:
    """The name, truncated to `MAX_NAME` characters."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def breakable(text: str) -> Markup:
    """The text, escaped, with points at which a browser may break its names: between words, not inside."""
    return Markup("<wbr>").join(BETWEEN_WORDS.split(text))


def thumbnail(path: Path, colours: Colours = AS_USUAL) -> str:
    """The image at no more than `THUMBNAIL_SIDE` px a side, as a data URI; empty if it cannot be read."""
    try:
        image = decode(path, THUMBNAIL_SIDE, colours)
    except UnreadableImageError:  # deleted since it was evaluated
        return ""
    return _small(image)


def picture(pixels: np.ndarray) -> str:
    """An image (H, W, 3), uint8, as a data URI like those of `thumbnail`."""
    return _small(Image.fromarray(pixels))


def heat_picture(heat: np.ndarray) -> str:
    """A heat map (h, w), float32, from 0 to 1, as a data URI of some hundred bytes: clear to pink."""
    image = Image.fromarray(heat)
    image.thumbnail((HEAT_SIDE, HEAT_SIDE), Image.Resampling.BOX)
    shares = np.cbrt(np.asarray(image) / np.asarray(image).max())  # or only the hottest spot is seen
    levels = Image.fromarray(np.rint(shares * (HEAT_LEVELS - 1)).astype(np.uint8)).convert("P")
    steps = np.linspace(0, 1, HEAT_LEVELS)
    levels.putpalette(HEAT_COLOUR * HEAT_LEVELS)
    return encode(levels, transparency=bytes(np.rint(255 * MAX_HEAT * steps).astype(np.uint8)), bits=4)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> str:
    """Encode an image as a data URI; the options are Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _small(image: Image.Image) -> str:
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    small.info.clear()  # or the comments of the file would be copied
    return encode(small, "WEBP", quality=THUMBNAIL_QUALITY)  # a third smaller than as a JPEG
