"""1.28 million rows, opened and checked: an ImageDirectory and plain folders, each in its own
process.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from tests.benchmarks.timing import arguments, measure_in_turn, run_json, show
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.schema import image_schema
from train_pytorch_model.inputs.headers import read_headers

LINKS = 50_000  # per file: ext4 allows 65,000


def main() -> None:
    """Print seconds and peak memory."""
    chosen = arguments_of_rows(__doc__).parse_args()
    if chosen.open:
        print(json.dumps(open_and_check(chosen.open)))
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        make_rows(Path(folder), chosen.rows, chosen.categories)
        program = (sys.executable, "-m", "tests.benchmarks.million_rows", "--open")
        measures = {
            "image list": lambda: run_json(*program, folder),
            "plain folders": lambda: run_json(*program, Path(folder) / "image"),
        }
        print(f"{chosen.rows:,} rows in {chosen.categories:,} categories")
        show(measure_in_turn(measures, chosen.repeats))


def arguments_of_rows(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for benchmarks that make rows and open them in child processes."""
    parser = arguments(description, images=False)
    parser.add_argument("--rows", type=int, default=1_280_000)
    parser.add_argument("--categories", type=int, default=1000)
    parser.add_argument(
        "--folder", type=Path, help="where to make the files; the temporary folder if not given"
    )
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    return parser


def open_and_check(root: Path) -> dict[str, float]:
    """Do what training does before it loads PyTorch; return times and peak memory."""
    started_at = time.perf_counter()
    directory = open_image_directory(root, "Training dataset")
    opened_at = time.perf_counter()
    read_headers(directory)
    directory.fingerprint()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {
        "seconds to open": opened_at - started_at,
        "seconds to open and check": time.perf_counter() - started_at,
        "peak memory, MB": peak_mb,
    }


def make_rows(root: Path, rows: int, categories: int) -> None:
    """Write an ImageDirectory of hard links to a small JPEG; categories alternate, as in a shuffled
    list.
    """
    for category in range(categories):
        (root / "image" / f"n{category:08d}").mkdir(parents=True)
    with (root / "images.lst").open("w") as image_list:
        for index in range(rows):
            if index % LINKS == 0:
                source = root / f"{index}.jpg"
                Image.new("RGB", (500, 375)).save(source)
            category = index % categories
            name = f"image/n{category:08d}/n{category:08d}_{index}.JPEG"
            os.link(source, root / name)
            row = {"image_info": {"file_name": name}, "category": f"class {category}", "id": index}
            image_list.write(json.dumps(row) + "\n")
    content = image_schema([f"class {category}" for category in range(categories)])
    (root / "_schema.json").write_text(json.dumps(content))
    (root / "_meta.yaml").write_text(
        "type: ImageDirectory\nextension: {}\nimage_list: images.lst\nsamples: _samples.json\n"
        "schema: _schema.json\n"
    )


if __name__ == "__main__":
    main()
