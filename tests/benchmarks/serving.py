"""Clients that ask MLflow's server of a trained model about good and bad images, all at once, for a
while.
"""

import base64
import json
import os
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

from tests.benchmarks.timing import arguments, machine, paint_photos
from tests.ports import free_port
from tests.programs.server import serving

BAD_FILES = (b"", b"not an image", b"\xff\xd8\xff\xe0 not a JPEG", b"\x89PNG\r\n\x1a\n not a PNG")
REPORTED_S = 10.0


class Clients:
    """What all clients have seen so far."""

    def __init__(self, url: str, photos: list[str]) -> None:
        self._url, self._photos = url, photos
        self._bad = [base64.b64encode(file).decode() for file in BAD_FILES]
        self.is_over = threading.Event()
        self.answers: Counter[str] = Counter()

    def ask(self, number: int) -> None:
        """Ask until it is over: one photograph, four with a bad image among them, or a bad one
        alone.
        """
        while not self.is_over.is_set():
            photos = [self._photos[(number + step) % len(self._photos)] for step in range(3)]
            bad, kind = self._bad[number % len(self._bad)], number % 8
            files = [bad] if kind == 7 else [*photos, bad] if kind in (3, 5) else photos[:1]
            expected = ["row error" if file is bad else "label" for file in files]
            found = self._answer(files)
            is_right = found == ("400" if files == [bad] else expected)
            self.answers["right" if is_right else f"wrong: {found}"] += 1
            self.answers["images"] += len(files)
            number += 1

    def _answer(self, files: list[str]) -> list[str] | str:
        """What each file is answered with, or the status of an error."""
        question = json.dumps({"dataframe_records": [{"image": file} for file in files]}).encode()
        request = urllib.request.Request(self._url, question, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                rows = json.load(answer)["predictions"]
        except urllib.error.HTTPError as error:
            return str(error.code)
        except OSError as error:
            return repr(error)
        return [
            "label" if row["Scored Labels"] and not row["error"] else "row error" for row in rows
        ]


def main() -> None:
    """Print requests per second, the wrong answers, and the resident memory of the server's
    processes.
    """
    parser = arguments(__doc__)
    parser.add_argument("--trained-model", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    chosen = parser.parse_args()
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "models",
        "serve",
        "--env-manager",
        "local",
        "--workers",
        "1",
    ]
    command += ["--model-uri", str(chosen.trained_model.resolve()), "--port", str(port)]
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        images = chosen.images or paint_photos(Path(folder) / "images", 8)
        files = sorted(file for file in images.rglob("*.jp*g") if file.is_file())[:64]
        photos = [base64.b64encode(file.read_bytes()).decode() for file in files]
        with serving(command, path, Path(folder), f"http://127.0.0.1:{port}/ping"):
            clients = Clients(f"http://127.0.0.1:{port}/invocations", photos)
            _run(clients, chosen.clients, chosen.seconds)


def _run(clients: Clients, count: int, seconds: float) -> None:
    print(
        f"{machine()}, {count} clients\n\n| after, s | requests | images | resident, MB"
        " |\n|---|---|---|---|"
    )
    threads = [
        threading.Thread(target=clients.ask, args=(1000 * number,)) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    started_at = time.perf_counter()
    while (elapsed_s := time.perf_counter() - started_at) < seconds:
        time.sleep(min(REPORTED_S, seconds - elapsed_s))
        answers = clients.answers.copy()
        elapsed_s, num_images = time.perf_counter() - started_at, answers.pop("images", 0)
        print(
            f"| {elapsed_s:.0f} | {answers.total()} | {num_images} | {_children_mb():.0f} |",
            flush=True,
        )
    clients.is_over.set()
    for thread in threads:
        thread.join()
    answers = clients.answers
    answers.pop("images")
    print(
        f"\n{answers.total() / elapsed_s:.1f} requests/s; "
        + ", ".join(f"{n} {what}" for what, n in answers.items())
    )


def _children_mb() -> float:
    """The resident memory of all processes below this one."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(
                line.split(":", 1) for line in status.read_text().splitlines() if ":" in line
            )
        except OSError:
            continue
        parents[int(lines["Pid"])] = int(lines["PPid"])
        resident[int(lines["Pid"])] = int(lines.get("VmRSS", "0 kB").split()[0])
    below, last = set[int](), {os.getpid()}
    while last := {pid for pid, parent in parents.items() if parent in last}:
        below |= last
    return sum(resident[pid] for pid in below) / 1000


if __name__ == "__main__":
    main()
