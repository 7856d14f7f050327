"""Decoders that crash or hang in the middle of a run."""

import csv
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.faults.injections import decoders_do_what_names_say
from tests.faults.trials import Bench, result_of
from tests.painting import encode, paint

REASONS = {
    "crash.png": "its decoder crashed (SIGSEGV)",
    "spin.png": "its decoder was still computing after 60 s",
    "exhaust.png": "MemoryError",
}


@pytest.mark.parametrize("ranks", [1, 2])
def test_images_whose_decoder_fails_are_left_out_of_training(
    bench: Bench, tmp_path: Path, ranks: int
) -> None:
    training, output = tmp_path / "training", tmp_path / "trained"
    shutil.copytree(bench.folders / "training", training)
    for name in REASONS:
        (training / "red" / name).write_bytes(encode(paint("red", 99)))
    faulty = partial(decoders_do_what_names_say)
    ended = bench.train(
        output, "--training-dataset", str(training), injections=[faulty], ranks=ranks
    )
    assert set(ended.statuses) == {0}, ended
    assert "Traceback" not in ended.stderr
    assert len(result_of(output).metrics) == 2
    with (output / "bad_images.csv").open(newline="") as file:
        found = {Path(row["file_name"]).name: row["reason"] for row in csv.DictReader(file)}
    assert found == REASONS
