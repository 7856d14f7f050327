"""Draw the README's terminal picture: run a command in a terminal, and draw the last frame of its
last epoch.

python -m tests.terminal_picture .github/terminal.svg -- python -m train_pytorch_model train …
"""

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 96, 50
MOMENT = "data wait"  # the last frame with this text is drawn
CONTROL = re.compile(r"\x1b\[(\??\d*)([A-HJ-Zhl])|(\r)|(\n)")  # all but colours, which end in m
# Rich's own template loads a web font; this one uses fonts that every system has.
SVG = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px/{line_height}px ui-monospace, Menlo, Consolas,
    "DejaVu Sans Mono", monospace;
}}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    """Run the command and write the picture."""
    output, separator, *command = sys.argv[1:]
    assert separator == "--", __doc__
    screen: list[str] = [""]
    frame: list[str] = []
    row = 0
    for text in _output_of(command):
        row = _write(screen, row, text)
        if any(MOMENT in line for line in screen):
            frame = list(screen)
    _draw([f"$ {' '.join(command)}", *frame], Path(output))


def _output_of(command: list[str]) -> Iterator[str]:
    """Yield what a command writes to a terminal, piece by piece."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        while text := os.read(terminal, 1 << 16):
            yield from re.split(r"(?=\r)", text.decode("utf-8", "replace"))  # before each erasure
    except OSError:  # how Linux reports that the process has ended
        pass
    os.close(terminal)
    os.waitpid(process, 0)


def _write(screen: list[str], row: int, text: str) -> int:
    """Apply the few cursor movements that Rich uses, as it writes whole lines.

    Returns the cursor's row.
    """
    position = 0
    for match in CONTROL.finditer(text):
        screen[row] += text[position : match.start()]
        position = match.end()
        number, letter, _, newline = match.groups()
        if newline:
            row += 1
            screen.extend([""] * (row + 1 - len(screen)))
        elif letter == "A":
            row = max(0, row - int(number or 1))
        elif letter == "K":
            screen[row] = ""
    screen[row] += text[position:]
    return row


def _draw(lines: list[str], output: Path) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in lines:
        text = Text.from_ansi(line)
        pieces = text.divide(range(COLUMNS, len(text), COLUMNS)) if len(text) > COLUMNS else [text]
        for piece in pieces:
            console.print(piece, soft_wrap=True)
    output.write_text(
        console.export_svg(title="train-pytorch-model", code_format=SVG, unique_id="t")
    )


if __name__ == "__main__":
    main()
