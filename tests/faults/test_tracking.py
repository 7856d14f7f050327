"""A failing tracking server costs a warning; training is unaffected."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.injections import (
    environment,
    every_checkpoint_is_waited_for,
    the_tracker_closes_within,
)
from tests.faults.trials import Bench, Injection, Result, result_of


@pytest.mark.parametrize("is_there", [False, True], ids=["refuses", "never answers"])
def test_a_run_completes_without_its_tracking_server(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, is_there: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        if not is_there:
            server.shutdown(socket.SHUT_RDWR)
        injections: list[Injection] = [
            partial(every_checkpoint_is_waited_for),
            partial(environment, MLFLOW_TRACKING_URI=f"http://127.0.0.1:{server.getsockname()[1]}"),
            partial(the_tracker_closes_within, seconds=2.0),
        ]
        ended = bench.launch(bench.arguments(output), injections).wait()
    assert ended.statuses == [0], ended
    assert ended.stdout.count("Warning: MLflow does not have all metrics (") == 1
    assert "Traceback" not in ended.stderr
    assert result_of(output) == undisturbed(1)
