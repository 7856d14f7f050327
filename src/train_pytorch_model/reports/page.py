"""Self-contained HTML pages: single files that open anywhere, without a network.

File and category names are untrusted: the templates escape them, and the Content-Security-Policy of
a page forbids it to load anything or to run any script but ours. `templates/parts.html` holds the
shared macros; its `gallery` draws a `Gallery`, a section that shows pictures with captions in a
grid.
"""

import base64
import hashlib
import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from train_pytorch_model import __version__
from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.time_budget import duration

MAX_NAME = 100  # characters; longer names are truncated
BETWEEN_WORDS = re.compile(r"(?<=[/\\_+,=&@-])")  # where a name may be broken, besides at spaces


def render_page(template: str, *, script_name: str = "page.js", **values: object) -> str:
    """Render a template that extends `page.html`, with the script of that name."""
    environment = Environment(
        loader=PackageLoader("train_pytorch_model.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shorten": shorten, "breakable": breakable}
    environment.globals |= {"counted": counted, "duration": duration}
    script = environment.get_template(script_name).render()
    digest = hashlib.sha256(script.encode()).digest()
    page = environment.get_template(template).render(
        version=__version__,
        script=script,
        script_hash=base64.b64encode(digest).decode(),
        **values,
    )
    # A file name that is not valid UTF-8 holds lone surrogates, which cannot be encoded.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def shorten(name: str) -> str:
    """Return the name, truncated to `MAX_NAME` characters."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def breakable(text: str) -> Markup:
    """Return the text, escaped, with points at which a browser may break its names.

    They are between words, not inside.
    """
    return Markup("<wbr>").join(BETWEEN_WORDS.split(text))
