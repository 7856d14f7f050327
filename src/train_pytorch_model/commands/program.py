"""What all verbs share, from the command line to the exit status."""

import atexit
import difflib
import inspect
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from types import FrameType
from typing import Annotated, Any, NoReturn, Protocol, cast

import tyro

from train_pytorch_model import __version__, errors
from train_pytorch_model.config.wording import flag, for_command_line
from train_pytorch_model.errors import ParameterError, UserError
from train_pytorch_model.formats.error_record import leave_error_info, remove_error_info
from train_pytorch_model.machine.azure_job import is_azure_job
from train_pytorch_model.machine.console import fit_to_stderr, write_what_the_console_can
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.machine.stop_requests import StoppedError, leave_terminal
from train_pytorch_model.machine.threads import OPENMP

# torchrun ends all processes as soon as one exits. The other ranks give rank 0 this long to exit
# first: it has files to close and the message to print.
GRACE_S = 10.0

_DATA = "training_dataset validation_dataset dataset input folder"
# Of a verb that has several, the first is meant: score and evaluate read a trained model, train
# writes one.
_OUTPUTS = "scored_dataset output output_1 trained_model"
_OURS = {
    "learning_rate": "lr lr0 base_lr init_lr max_lr",
    "batch_size": "b bs batch train_batch_size per_device_train_batch_size",
    "epochs": "epoch n_epochs num_epochs max_epochs num_train_epochs",
    "seed random_seed": "seed manual_seed",
    "warmup_epochs": "warmup warmup_epochs lr_warmup_epochs",
    "image_size": "imgsz img img_size input_size crop_size resolution",
    _DATA: "d data data_dir data_path data_root dataset dataset_dir"
    " i input images source src path folder test test_dir",
    "training_dataset": "train train_dir train_data training_data",
    "validation_dataset": "val val_dir valid validation validation_data",
    _OUTPUTS: "o out output output_dir save_dir project dst evaluation",
    "untrained_model trained_model architecture": "m model a arch backbone checkpoint weights",
    "precision": "amp fp16 bf16 half mixed_precision",
    "optimizer": "opt optim",
    "top_k": "topk k",
}
NAMES: Mapping[str, str] = {name: ours for ours, names in _OURS.items() for name in names.split()}
"""What other trainers call an option → the fields that it may mean here, separated by spaces."""

_INSTEAD = {
    "device devices gpu gpus gpu_ids accelerator cpu cuda no_cuda": "all GPUs are used, else the CPU."
    " CUDA_VISIBLE_DEVICES=0 before the command takes the first GPU only, CUDA_VISIBLE_DEVICES=-1"
    " the CPU.",
    "j workers num_workers dataloader_num_workers": "the number of decoders follows from the cores of the"
    " machine.",
    "resume resume_from_checkpoint auto_resume": "the same command resumes an interrupted run; the option"
    " fresh starts over.",
    "momentum weight_decay wd sched lr_scheduler": "the optimizer's settings and its schedule are fixed;"
    " .github/docs/recipe.md describes them.",
}
REMARKS: Mapping[str, str] = {
    name: text for names, text in _INSTEAD.items() for name in names.split()
}
"""Options of other trainers that have no counterpart → what happens instead."""

VERBS: Mapping[str, str] = {
    **dict.fromkeys(("predict", "infer", "inference", "classify"), "score"),
    **dict.fromkeys(("test", "val", "validate", "eval"), "evaluate"),
    **dict.fromkeys(("finetune", "fine-tune", "resume"), "train"),
    "init": "init-model",
}
"""What other trainers call a verb → ours."""


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
        _run(
            lambda: cast(
                Command, tyro.cli(every, prog=prog, description=description, args=["--help"])
            )
        )
    else:
        _run(lambda: _parse_verb(name, commands, prog, rest))


def leave_after(main: Callable[[], None]) -> None:
    """Run `main`, then exit with its status, without taking PyTorch and MLflow apart, which takes
    seconds.
    """
    status = 1  # of an error, or of a message that `main` exits with: Python prints both

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, AttributeError):  # closed by the parent process: then it is None
                stream.flush()
        os._exit(status)

    atexit.register(
        leave
    )  # as the first, so that it is called last, after threads have been joined
    try:
        main()
        status = 0
    except SystemExit as end:
        if isinstance(end.code, int | None):
            status = end.code or 0
        raise
    finally:
        _end_at_signals()


def _parse(command: type[Command], prog: str, rest: Sequence[str]) -> Command:
    description = f"{inspect.getdoc(command)}\n\nExample:\n  {prog} {command.EXAMPLE}"
    return tyro.cli(
        command, prog=prog, description=description, args=without_boolean_values(rest, command)
    )


def _parse_verb(
    name: str, commands: Mapping[str, type[Command]], prog: str, rest: Sequence[str]
) -> Command:
    """Parse a verb's options; also say what was probably meant by those that it lacks."""
    if name not in commands:
        raise missing_verb(name, list(commands), prog)
    for option, value in pairwise(["", *rest]):
        if not value or re.fullmatch("--[a-z-]+=", value):
            raise ParameterError(
                f"{value[:-1] or option or name} is empty. Is a shell variable not set?"
            )
    try:
        return _parse(commands[name], f"{prog} {name}", rest)
    except SystemExit as end:
        if end.code:
            options = {verb: [each.name for each in fields_of(commands[verb])] for verb in commands}
            print(*hints(rest, name, options), sep="\n", file=sys.stderr)
        raise


def hints(
    arguments: Iterable[str], verb: str, options: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield a sentence about each option that `verb` lacks; `options` has the fields of every verb."""
    flags = [flag(each) for each in options[verb]]
    for argument in arguments:
        option = argument.partition("=")[0]
        name = option.lstrip("-").replace("-", "_").lower()
        is_ours = f"--{name.replace('_', '-')}" in flags
        if is_ours or not option.startswith("-") or not name.isidentifier():
            continue
        if name in REMARKS:
            yield f"{option} is not an option: {REMARKS[name]}"
            continue
        names = NAMES.get(name, name)
        meant = names.split()
        if "folder" in meant and "folder" in options[verb]:
            yield f"{option} is not an option here: name the folder alone."
        elif here := [flag(each) for each in meant if each in options[verb]]:
            here = here[:1] if names == _OUTPUTS else here
            yield f"{option} is {' or '.join(here)} here."
        else:
            for each in meant:
                if verbs := [other for other in options if each in options[other]]:
                    called = option if each == name else f"{option} is {flag(each)} here, which"
                    names = " and ".join(filter(None, (", ".join(verbs[:-1]), verbs[-1])))
                    yield f"{called} is not an option of {verb}, but of {names}."
                    break


def missing_verb(first: str, verbs: Sequence[str], prog: str) -> ParameterError:
    """Return the error for a command line that does not start with a verb."""
    if first.startswith("-"):
        problem = f'a verb comes before the options: "{prog} VERB {first} …".'
    else:
        closest = difflib.get_close_matches(VERBS.get(first.lower(), first), verbs, n=1)
        problem = f'"{first}" is not a verb.' + "".join(
            f' Did you mean "{verb}"?' for verb in closest
        )
    return ParameterError(
        f'{problem} The verbs are {", ".join(verbs)}; "{prog} VERB --help" lists the options of one.'
    )


def without_boolean_values(arguments: Sequence[str], command: type) -> list[str]:
    """Rewrite `--pretrained True`, as Azure ML passes a boolean, and `False`, which may become
    `--no-…`.
    """
    defaults = {
        each.name: each.default for each in fields_of(command) if isinstance(each.default, bool)
    }
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
    """Run a command; if it fails, print how, and exit with its status."""
    write_what_the_console_can()
    for name, value in OPENMP.items():
        os.environ.setdefault(name, value)
    _end_orderly_at_signals()
    try:
        with for_command_line():
            _run_command(parse)
    except OSError as error:
        _exit_without_output(error)
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


def _exit_without_output(error: OSError) -> NoReturn:
    """Exit if standard output is closed or its disk is full; raise any other error again."""
    is_closed = isinstance(error, BrokenPipeError)  # by the reader of a pipe, as `| head` does
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
    for name in (
        "SIGINT",
        "SIGTERM",
        "SIGHUP",
        "SIGQUIT",
    ):  # PyTorch's launcher handles the last two as well
        number = getattr(signal, name, None)  # Windows has fewer
        if number and callable(
            signal.getsignal(number)
        ):  # an ignored signal stays ignored, as under nohup
            signal.signal(number, signal.SIG_DFL)


class _Terminated(SystemExit):
    """The program has received SIGTERM, or SIGHUP when its terminal was closed."""

    code: int


def _terminated(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001, signal's signature
    if number != signal.SIGTERM:
        leave_terminal()
    raise _Terminated(128 + number)
