"""Run a program from its command line to its exit status."""

import atexit
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from train_pytorch_model import __version__, errors
from train_pytorch_model.commands.parsing import Command, parse, parse_verb, print_verbs
from train_pytorch_model.config.wording import for_command_line
from train_pytorch_model.errors import UserError
from train_pytorch_model.formats.error_record import leave_error_info, remove_error_info
from train_pytorch_model.machine.azure_job import is_azure_job
from train_pytorch_model.machine.console import fit_to_stderr, write_what_the_console_can
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.machine.memory import available_memory
from train_pytorch_model.machine.stop_requests import StoppedError, leave_terminal
from train_pytorch_model.machine.threads import OPENMP

# torchrun ends all processes as soon as one exits. The other ranks give rank 0 this long to exit
# first: it has files to close and the message to print.
GRACE_S = 10.0
CPU_MEMORY = "DefaultCPUAllocator"  # in the error of PyTorch's allocator


def run_command(command: type[Command], prog: str) -> None:
    """Run a program with a single command; exits with its status."""
    _run(lambda: parse(command, prog, sys.argv[1:]))


def run_verbs(commands: Mapping[str, type[Command]], prog: str, description: str) -> None:
    """Run a program with several verbs; exits with the status of the verb named."""
    first, *rest = sys.argv[1:] or ["--help"]
    verb = first.replace("_", "-")
    if verb == "--version":
        print(__version__)
    elif verb in ("-h", "--help", "help"):
        _run(lambda: print_verbs(commands, prog, description))
    else:
        _run(lambda: parse_verb(verb, commands, prog, rest))


def leave_after(main: Callable[[], None]) -> None:
    """Run `main`, then exit with its status, without taking PyTorch and MLflow apart.

    That would take seconds.
    """
    status = 1  # of an error, or of a message that `main` exits with: Python prints both

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, AttributeError):  # closed by the parent process: then it is None
                stream.flush()
        os._exit(status)

    # Registered first, so that it is called last, after threads have been joined.
    atexit.register(leave)
    try:
        main()
        status = 0
    except SystemExit as end:
        if isinstance(end.code, int | None):
            status = end.code or 0
        raise
    finally:
        _end_at_signals()


def _run(parse_options: Callable[[], Command]) -> None:
    """Run a command; if it fails, print how, and exit with its status."""
    write_what_the_console_can()
    for name, value in OPENMP.items():
        os.environ.setdefault(name, value)
    _end_orderly_at_signals()
    try:
        with for_command_line():
            _run_command(parse_options)
    except OSError as error:
        _exit_without_output(error)
    except errors.FailedWorkersError as error:
        sys.exit(error.status)  # they have said why
    except UserError as error:
        _report(error)
        sys.exit(error.exit_status)
    except (KeyboardInterrupt, StoppedError, _Terminated) as ended:
        _end_at_signals()
        if rank_of(os.environ) == 0:
            print(fit_to_stderr(f"\n{_last_words(ended)}"), file=sys.stderr, flush=True)
        if isinstance(ended, SystemExit):
            raise
        sys.exit(128 + signal.SIGINT)


def _run_command(parse_options: Callable[[], Command]) -> None:
    """Parse and run. Raises `SystemLimitError` where the system gives no thread or no memory."""
    try:
        command = parse_options()
        if is_azure_job() and rank_of(os.environ) == 0:
            remove_error_info()
        command.run()
    except (RuntimeError, BlockingIOError, MemoryError) as error:
        if isinstance(error, MemoryError) or CPU_MEMORY in str(error):
            raise _out_of_memory() from error
        if not isinstance(error, BlockingIOError) and "can't start new thread" not in str(error):
            raise
        raise errors.SystemLimitError(
            f"The system starts no further thread or process: {error}. Raise the limit of this user"
            " (`ulimit -u`), or of the container or job (pids)."
        ) from error
    finally:
        if sys.stdout:  # None if it was closed when the program started
            sys.stdout.flush()


def _out_of_memory() -> errors.SystemLimitError:
    free = available_memory() / (1 << 30)
    return errors.SystemLimitError(
        f"The memory of this machine does not suffice: {free:.1f} GiB of it are free. Close other"
        " programs, or give the container or job more memory."
    )


def _exit_without_output(error: OSError) -> NoReturn:
    """Exit if standard output is closed or its disk is full; raise any other error again."""
    is_closed = error.errno == errno.EPIPE  # by the reader of a pipe, as `| head` does
    if not is_closed and error.errno not in errors.DISK_IS_FULL:
        raise error
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # the interpreter must not flush, and fail, again
    if is_closed:
        sys.exit(128 + signal.SIGPIPE)
    # No verb has handled it, so the full disk is the one that standard output is redirected to.
    print(f"Standard output cannot be written: {error.strerror}.", file=sys.stderr, flush=True)
    sys.exit(errors.UnfinishedOutputError.exit_status)


def _report(error: UserError) -> None:
    """Print an error, or leave that to rank 0 and give it the time to do so."""
    rank = rank_of(os.environ)
    if is_azure_job():
        leave_error_info(error, rank)
    # Every rank raises the same mistake, but any rank can run out of memory or lose another.
    if rank == 0 or isinstance(error, (errors.ModuleOutOfMemoryError, errors.LostRankError)):
        print(fit_to_stderr(f"{type(error).__name__}: {error}"), file=sys.stderr, flush=True)
    else:
        with suppress(KeyboardInterrupt):
            time.sleep(GRACE_S)


def _last_words(ended: BaseException) -> str:
    """Return the last message after a signal; of a stopped training, even after a second signal."""
    cause: BaseException | None = ended
    while cause is not None:
        if isinstance(cause, StoppedError):
            return cause.message
        cause = cause.__context__
    how = "Interrupted"
    if isinstance(ended, _Terminated):
        how = f"Stopped by {signal.Signals(ended.code - 128).name}"
    return f"{how}. No output was written."


def _end_orderly_at_signals() -> None:
    """Have SIGTERM, and the end of the terminal, raise `_Terminated`, unless nohup ignores it."""
    numbers = [signal.SIGTERM]
    if hasattr(signal, "SIGHUP"):  # Windows has no terminal to close
        numbers.append(signal.SIGHUP)
    for number in numbers:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _terminated)


def _end_at_signals() -> None:
    """Let further signals end this process at once, without a traceback: it is ending anyway."""
    # PyTorch's launcher handles the last two as well; Windows has fewer.
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)
        # An ignored signal, whose handler is a number, stays ignored, as under nohup.
        if number and callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


class _Terminated(SystemExit):
    """The program has received SIGTERM, or SIGHUP when its terminal was closed."""

    code: int


def _terminated(number: int, _: FrameType | None) -> NoReturn:
    """Raise `_Terminated`: as a handler of signals, between two instructions of the main thread."""
    if number != signal.SIGTERM:
        leave_terminal()
    raise _Terminated(128 + number)
