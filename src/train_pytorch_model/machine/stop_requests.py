"""Signals that ask a run to stop: it ends at the next step, with a checkpoint."""

import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from train_pytorch_model.machine.console import erase_bar

GRACE_S = 25.0  # for a checkpoint, on top of the longest step so far; torchrun kills after 30
# One request: Ctrl-C reaches a launcher and its workers, and the launcher forwards it.
TOGETHER_S = 1.0
# SIGHUP: the terminal, or its connection, is closed. Windows has none.
SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)


class StoppedError(SystemExit):
    """A run has stopped because it was asked to; the exit status is 128 plus the signal."""

    def __init__(self, number: int, checkpoints: Path, is_saved: bool) -> None:
        super().__init__(128 + number)
        if is_saved:
            how = f"The same command resumes from here; the checkpoint is in {checkpoints}."
        else:
            how = (
                f"No final checkpoint could be written to {checkpoints}; the same command resumes"
                " from the previous one, if there is any."
            )
        self.message = f"Stopped by {signal.Signals(number).name}. {how}"


@dataclass
class StopRequests:
    """Whether this process was asked to stop, and by which signal."""

    signal: int | None = None
    longest_step_s: float = 0.0
    _is_asked: threading.Event = field(default_factory=threading.Event)
    _asked_at: float = 0.0
    _timer: threading.Timer | None = None

    def ask(self, number: int) -> None:
        """Record a request.

        The second one ends the process at once, as does the end of the grace period.
        """
        now = time.monotonic()
        if self.signal is None:
            self._asked_at = now
            self.signal = number
            self._is_asked.set()
            self._timer = threading.Timer(GRACE_S + self.longest_step_s, _end, [number])
            self._timer.daemon = True
            self._timer.start()
        elif now - self._asked_at > TOGETHER_S:
            _end(number)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the process has been asked, or is within that many seconds."""
        return self._is_asked.wait(timeout_s)

    def close(self) -> None:
        """Cancel the grace period: the process ends by itself."""
        if self._timer is not None:
            self._timer.cancel()


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Handle `SIGNALS` as stop requests, for a `with` in the main thread.

    A thread receives them: the main thread handles no signal while it waits for other processes.
    SIGHUP stays ignored under nohup.
    """
    requests = StopRequests()
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    listener = threading.Thread(
        target=_listen, args=(receiver, requests), daemon=True, name="signals"
    )
    listener.start()
    handlers = {}
    for number in SIGNALS:
        if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN:
            handlers[number] = signal.signal(number, lambda *_: None)
    previous_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield requests
    finally:
        signal.set_wakeup_fd(previous_fd)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        sender.close()
        listener.join()
        receiver.close()
        requests.close()


def _listen(receiver: socket.socket, requests: StopRequests) -> None:
    """Turn the numbers of signals into requests until the sender is closed."""
    while True:
        numbers = receiver.recv(16)
        if not numbers:
            return
        for number in numbers:
            if number not in SIGNALS:
                continue
            if signal.Signals(number).name == "SIGHUP":
                leave_terminal()
            requests.ask(number)


def leave_terminal() -> None:
    """Write nowhere from now on if this process writes to a terminal that is gone.

    Writing to it would raise errors.
    """
    for descriptor in (1, 2):
        with suppress(OSError):
            # A terminal that is gone is still a device, but not a terminal.
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _end(number: int) -> None:
    """End the process, whatever it waits for, without a lock that another thread may hold."""
    erase_bar()
    if os.environ.get("RANK", "0") == "0":
        message = (
            f"\nStopped by {signal.Signals(number).name} at once. The same command resumes from the"
            " last checkpoint, if there is any.\n"
        )
        with suppress(OSError):
            os.write(2, message.encode())
    os._exit(128 + number)
