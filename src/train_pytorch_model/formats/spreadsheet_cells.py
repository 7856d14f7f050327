"""Cells that a spreadsheet would compute, written so that it shows them.

    =cmd|' /C calc'!A0   is written   '=cmd|' /C calc'!A0

That is for tables which people open, and whose names come from others. Readers take the apostrophe
away, so that the names stay as they are.
"""

import re
from collections.abc import Iterable, Iterator

# It begins like a formula and calls something; `-1` and `+` are ordinary names of categories.
COMPUTED = re.compile(r"'*[=+\-@\t\r].*[(|!]", re.DOTALL)


def as_shown(cell: str) -> str:
    """Return a cell that a spreadsheet shows and does not compute."""
    return f"'{cell}" if COMPUTED.match(cell) else cell


def as_meant(cell: str) -> str:
    """Return what `as_shown` was given."""
    return cell[1:] if cell.startswith("'") and COMPUTED.match(cell) else cell


def shown_rows(rows: Iterable[Iterable[object]]) -> Iterator[list[object]]:
    """Yield rows whose cells a spreadsheet shows."""
    for row in rows:
        yield [as_shown(cell) if isinstance(cell, str) else cell for cell in row]
