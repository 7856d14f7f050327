"""Stands in for the `python` command: the zygote runs its command line.

Launchers start it, send it signals and wait for it, as if it were the interpreter.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tests.zygote.client import Forked

NAME = "TESTS_STAND_IN"
"""The environment variable with the path of the command."""

COMMAND = """#!{python} -SE
import sys
sys.path.insert(0, {root!r})
from tests.zygote.stand_in import main
main()
"""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def write_stand_in(folder: Path) -> Path:
    """Write the command, an executable file."""
    command = folder / "python"
    command.write_text(COMMAND.format(python=sys.executable, root=str(Path(__file__).parents[2])))
    command.chmod(0o755)
    return command


def stand_in() -> str:
    """Return the path of the command of this test session."""
    return os.environ[NAME]


def main() -> None:
    """Run this process's command line in a process that the zygote forks, and end like that one."""
    forked = Forked(sys.argv[1:], os.environ, (0, 1, 2), executable=sys.argv[0])
    for number in FORWARDED:
        signal.signal(number, lambda received, _: os.kill(forked.pid, received))
    status = forked.wait()
    assert status is not None
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
