"""One module per verb, or two that belong together: its options, and the call that runs it.

The docstring of a field is its text in `--help`, where a line break in it would be one: a text of
more than a line is joined from parts.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Have Ctrl-C end the process without a traceback, for a `with` around slow imports."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:  # ignored, as under nohup, or the caller's
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
