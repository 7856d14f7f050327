"""One module per verb, or two that belong together: its options, and the call that runs it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Have Ctrl-C end the process at once, without a traceback, during a `with` around slow
    imports.
    """
    handler = signal.getsignal(signal.SIGINT)
    if (
        handler is signal.default_int_handler
    ):  # else ignored, as under nohup, or handled by the caller
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, handler)
