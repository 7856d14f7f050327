"""Handle Ctrl-C during the first half second of a program, which it spends importing its modules."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Context manager around imports: Ctrl-C ends the process at once, without a traceback."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:  # ignored, as under nohup, or handled by the caller
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
