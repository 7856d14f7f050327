"""What all verbs share, from the command line to the exit status."""

import atexit
import inspect
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from types import FrameType
from typing import Annotated, Any, NoReturn, Protocol, cast

import tyro

from train_pytorch_model import __version__
from train_pytorch_model.commands.mistakes import hints, missing_verb
from train_pytorch_model.formats.run_folder import is_azure_job, leave_error_info, remove_error_info
from train_pytorch_model.machine.console import fit_to_stderr, write_what_the_console_can
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.machine.stop_requests import StoppedError, leave_terminal
from train_pytorch_model.machine.system import OPENMP
from train_pytorch_model.words import errors
from train_pytorch_model.words.errors import ParameterError, UserError
from train_pytorch_model.words.settings import flag

# torchrun ends all processes as soon as one exits. The other ranks give rank 0 this long to exit first: it
# has files to close and the message to print.
GRACE_S = 10.0


class Command(Protocol):
    """A parsed command line."""

    EXAMPLE: str
    """Its arguments in a typical call, for `--help`."""

    def run(self) -> None:
        """Run the command. Raises `UserError`."""


def run_command(command: type[Command], prog: str) -> None:
    """Run a program with a single command; exits with its status."""
    _run(lambda: _parse(command, prog, sys.argv[1:]))


def run_verbs(commands: Mapping[str, type[Command]], prog: str, description: str) -> None:
    """Run a program with several verbs; exits with the status of the verb named."""
    first, *rest = sys.argv[1:] or ["--help"]
    name = first.replace("_", "-")
    if name == "--version":
        print(__version__)
    elif name in ("-h", "--help", "help"):
        verbs: list[Any] = []
        for verb, command in commands.items():
            summary, *_ = (inspect.getdoc(command) or "").splitlines()
            verbs.append(Annotated[command, tyro.conf.subcommand(verb, description=summary)])
        every = reduce(or_, verbs)
        _run(lambda: cast(Command, tyro.cli(every, prog=prog, description=description, args=["--help"])))
    else:
        _run(lambda: _parse_verb(name, commands, prog, rest))


def leave_after(main: Callable[[], None]) -> None:
    """Run `main`, then exit with its status, without taking PyTorch and MLflow apart, which takes seconds."""
    status = 1  # of an error, or of a message that `main` exits with: Python prints both

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, AttributeError):  # closed by the parent process: then it is None
                stream.flush()
        os._exit(status)

    atexit.register(leave)  # as the first, so that it is called last, after threads have been joined
    try:
        main()
        status = 0
    except SystemExit as end:
        if isinstance(end.code, int | None):
            status = end.code or 0
        raise
    finally:
        _end_at_signals()


def _parse(command: type[Command], prog: str, arguments: Sequence[str]) -> Command:
    description = f"{inspect.getdoc(command)}\n\nExample:\n  {prog} {command.EXAMPLE}"
    arguments = without_boolean_values(arguments, command)
    return tyro.cli(command, prog=prog, description=description, args=arguments)


def _parse_verb(name: str, commands: Mapping[str, type[Command]], prog: str, rest: Sequence[str]) -> Command:
    """Parse a verb's options; also say what was probably meant by those that it lacks."""
    if name not in commands:
        raise missing_verb(name, list(commands), prog)
    for option, value in pairwise(["", *rest]):
        if not value or re.fullmatch("--[a-z-]+=", value):
            raise ParameterError(f"{value[:-1] or option or name} is empty. Is a shell variable not set?")
    try:
        return _parse(commands[name], f"{prog} {name}", rest)
    except SystemExit as end:
        if end.code:
            options = {verb: [each.name for each in fields_of(commands[verb])] for verb in commands}
            print(*hints(rest, name, options), sep="\n", file=sys.stderr)
        raise


def without_boolean_values(arguments: Sequence[str], command: type) -> list[str]:
    """Rewrite `--pretrained True`, as Azure ML passes a boolean, and `False`, which may become `--no-…`."""
    defaults = {each.name: each.default for each in fields_of(command) if isinstance(each.default, bool)}
    rewritten, rest = [], list(arguments)
    while rest:
        argument = rest.pop(0)
        default = defaults.get(argument.removeprefix("--").replace("-", "_"))
        is_switch = argument.startswith("--") and default is not None
        if is_switch and rest and rest[0].lower() in ("true", "false"):
            is_on = rest.pop(0).lower() == "true"
            if is_on != default:
                rewritten.append(argument if is_on else f"--no-{argument[2:]}")
        else:
            rewritten.append(argument)
    return rewritten


def fields_of(command: type) -> Iterator[Field[Any]]:
    """Yield the options of a command, including those of its groups."""
    for option in fields(command):
        if option.default_factory is not MISSING and is_dataclass(option.default_factory):
            yield from fields_of(cast(type, option.default_factory))
        else:
            yield option


def _run(parse: Callable[[], Command]) -> None:
    write_what_the_console_can()
    errors.name_parameters(flag)
    for name, value in OPENMP.items():
        os.environ.setdefault(name, value)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", None)):  # Windows has no terminal to close
        if number and signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup
            signal.signal(number, _terminated)
    try:
        _run_command(parse)
    except OSError as error:
        is_closed = isinstance(error, BrokenPipeError)  # by the reader of a pipe, as `| head` does
        if not is_closed and error.errno not in errors.DISK_IS_FULL:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter must not flush, and fail, again
        if is_closed:
            sys.exit(128 + signal.SIGPIPE)
        # No verb has handled it, so the full disk is the one that standard output is redirected to.
        print(f"Standard output cannot be written: {error.strerror}.", file=sys.stderr, flush=True)
        sys.exit(errors.UnfinishedOutputError.exit_status)
    except UserError as error:
        rank = rank_of(os.environ)
        if is_azure_job():
            leave_error_info(error, rank)
        # Every rank raises the same mistake, but any rank can run out of memory or lose another.
        if rank == 0 or isinstance(error, (errors.ModuleOutOfMemoryError, errors.LostRankError)):
            print(fit_to_stderr(f"{type(error).__name__}: {error}"), file=sys.stderr, flush=True)
        else:
            with suppress(KeyboardInterrupt):
                time.sleep(GRACE_S)
        sys.exit(error.exit_status)
    except (KeyboardInterrupt, StoppedError, _Terminated) as ended:
        _end_at_signals()
        if rank_of(os.environ) == 0:
            print(fit_to_stderr(f"\n{_last_words(ended)}"), file=sys.stderr, flush=True)
        if isinstance(ended, SystemExit):
            raise
        sys.exit(128 + signal.SIGINT)


def _run_command(parse: Callable[[], Command]) -> None:
    """Parse and run. Raises `SystemLimitError` if a thread or process cannot be started."""
    try:
        command = parse()
        if is_azure_job() and rank_of(os.environ) == 0:
            remove_error_info()
        command.run()
    except (RuntimeError, BlockingIOError) as error:
        if not isinstance(error, BlockingIOError) and "can't start new thread" not in str(error):
            raise
        raise errors.SystemLimitError(
            f"The system starts no further thread or process: {error}. Raise the limit of this user"
            " (`ulimit -u`), or of the container or job (pids)."
        ) from error
    finally:
        if sys.stdout:  # None if it was closed when the program started
            sys.stdout.flush()


def _last_words(ended: BaseException) -> str:
    """Return the last message after a signal; a stopped training's own, even after a second signal."""
    asked: BaseException | None = ended
    while asked is not None:
        if isinstance(asked, StoppedError):
            return asked.message
        asked = asked.__context__
    how = "Interrupted"
    if isinstance(ended, _Terminated):
        how = f"Stopped by {signal.Signals(ended.code - 128).name}"
    return f"{how}. No output was written."


def _end_at_signals() -> None:
    """Let further signals end this process at once, without a traceback: it is ending anyway."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):  # PyTorch's launcher handles the last two as well
        number = getattr(signal, name, None)  # Windows has fewer
        if number and callable(signal.getsignal(number)):  # an ignored signal stays ignored, as under nohup
            signal.signal(number, signal.SIG_DFL)


class _Terminated(SystemExit):
    """The program has received SIGTERM, or SIGHUP when its terminal was closed."""

    code: int


def _terminated(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001, signal's signature
    if number != signal.SIGTERM:
        leave_terminal()
    raise _Terminated(128 + number)
