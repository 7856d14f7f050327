"""The zygote of a test session: one server for all workers."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.zygote import stand_in
from tests.zygote.client import ADDRESS

SERVER = Path(__file__).with_name("server.py")


@dataclass(frozen=True)
class Zygote:
    """A running server, and the folder of its socket and of the stand-in for Python."""

    folder: Path
    process: subprocess.Popen[bytes]


def start_zygote() -> Zygote:
    """Start the server; the environment says where it is, also to workers."""
    folder = Path(tempfile.mkdtemp(prefix="zygote"))  # short: a socket's path has 107 bytes
    path = folder / "socket"
    process = subprocess.Popen([sys.executable, SERVER, path], stdin=subprocess.PIPE)
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.environ[ADDRESS] = str(path)
    os.environ[stand_in.NAME] = str(stand_in.write_stand_in(folder))
    return Zygote(folder, process)


def end_zygote(zygote: Zygote) -> None:
    """End the server, which kills what still runs."""
    zygote.process.communicate()
    shutil.rmtree(zygote.folder)
