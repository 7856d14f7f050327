"""HTML pages, parsed into elements and texts as a browser does."""

import base64
import io
from html.parser import HTMLParser

from PIL import Image

VOID = {"meta", "link", "img", "input", "br", "hr"}
BREAK = "<wbr>"  # may break a name; nothing of it is shown
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '"><b onmouseover="alert(1)">',
    "' onmouseover='alert(1)",
    "a &amp; b",
    "{{ 7 * 7 }}{% raise %}",
    "\u202egnp.tac",
    "two\nlines",
)


class Page(HTMLParser):
    """A parsed page: its elements and their texts. Fails if an end tag closes another element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.unclosed: list[str] = []
        self._texts: list[tuple[tuple[str, ...], str]] = []
        self.feed(html.replace(BREAK, ""))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.unclosed.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self._texts.append((tuple(self.unclosed), data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements with this tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    def texts(self, tag: str) -> list[str]:
        """The texts directly inside elements with this tag."""
        return [text for path, text in self._texts if path[-1:] == (tag,)]

    @property
    def text(self) -> str:
        """All visible text, without line breaks."""
        shown = (text for path, text in self._texts if not {"style", "script", "title"} & set(path))
        return " ".join(" ".join(shown).split())


def decoded(uri: str) -> Image.Image:
    """The image of a data URI."""
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
