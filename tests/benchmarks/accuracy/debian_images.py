"""Write `train/` and `val/` class folders from images in Debian packages.

    apt-get download tuxpaint-stamps-default openclipart-png 0ad-data
    for package in *.deb; do dpkg --extract "$package" packages; done
    python -m tests.benchmarks.accuracy.debian_images --packages packages --output images

`images/stamps` are cut-out photographs and drawings, `images/drawings` are drawings; both are put
on white and labelled by their folder. `images/terrain` are ground textures, labelled by the first
word of their names; each is cut into four parts, which are all for training or all held out.
"""

import argparse
import io
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

STAMPS = Path("usr/share/tuxpaint/stamps")
DRAWINGS = Path("usr/share/openclipart/png")
TEXTURES = Path("usr/share/games/0ad/mods/public/public.zip")
FOLDER_OF_TEXTURES = "art/textures/terrain/types/"

NO_SUBJECT = frozenset({"special", "unsorted"})  # folders of mixed drawings
NO_PICTURES = ("_norm.", "_spec.", "_pers.")  # lighting maps that accompany a texture
MAX_SIDE = 1_600  # px; a few have half a billion pixels
SEED = 1

Pictures = Mapping[str, Sequence[Path | bytes]]
"""Category → its pictures, in a fixed order."""


def in_folders(root: Path, num_categories: int) -> Pictures:
    """Return the PNGs of the largest folders, by folder; none has more than `MAX_SIDE` px."""
    found = {
        folder.name: [path for path in sorted(folder.rglob("*.png")) if _is_small(path)]
        for folder in sorted(root.iterdir())
        if folder.is_dir() and folder.name not in NO_SUBJECT
    }
    largest = sorted(found, key=lambda name: len(found[name]), reverse=True)[:num_categories]
    return {name: found[name] for name in sorted(largest)}


def textures(archive_path: Path, fewest: int) -> Pictures:
    """Return the DDS files of a game's archive, by the first word of their names.

    Categories with fewer than `fewest` are left out.
    """
    found = defaultdict(list)
    with zipfile.ZipFile(archive_path) as archive:
        for member in sorted(archive.namelist()):
            name = member.removeprefix(FOLDER_OF_TEXTURES)
            if name == member or "/" in name or not name.endswith(".dds"):
                continue
            if not any(part in name for part in NO_PICTURES):
                found[name.split("_")[0]].append(archive.read(member))
    return {name: pictures for name, pictures in found.items() if len(pictures) >= fewest}


def write(
    pictures: Pictures, output: Path, most: int, trained_share: float, parts: int = 1
) -> None:
    """Split at most `most` pictures of each category; cut each into `parts` rows and columns."""
    random = np.random.default_rng(SEED)
    for category, found in pictures.items():
        chosen = random.permutation(len(found))[:most]
        num_training = round(trained_share * len(chosen))
        for place, index in enumerate(chosen):
            folder = output / ("train" if place < num_training else "val") / category
            folder.mkdir(parents=True, exist_ok=True)
            for number, part in enumerate(_cut(_on_white(found[index]), parts)):
                part.save(folder / f"{index}_{number}.png")


def _is_small(path: Path) -> bool:
    """Whether both sides, read from the first 24 bytes of a PNG, are within `MAX_SIDE`."""
    with path.open("rb") as file:
        width, height = struct.unpack(">16x2I", file.read(24))
    return bool(max(width, height) <= MAX_SIDE)


def _on_white(picture: Path | bytes) -> Image.Image:
    with Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture) as image:
        opaque = image.convert("RGBA")
    white = Image.new("RGBA", opaque.size, "white")
    return Image.alpha_composite(white, opaque).convert("RGB")


def _cut(image: Image.Image, parts: int) -> Iterator[Image.Image]:
    width, height = image.width // parts, image.height // parts
    for row in range(parts):
        for column in range(parts):
            left, top = column * width, row * height
            yield image.crop((left, top, left + width, top + height))


def main() -> None:
    """Write all three data sets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--packages", type=Path, required=True, help="folder with the extracted packages"
    )
    parser.add_argument("--output", type=Path, required=True)
    chosen = parser.parse_args()
    packages, output = chosen.packages, chosen.output
    write(in_folders(packages / STAMPS, 8), output / "stamps", most=100, trained_share=0.7)
    write(in_folders(packages / DRAWINGS, 10), output / "drawings", most=140, trained_share=0.715)
    write(
        textures(packages / TEXTURES, 20), output / "terrain", most=60, trained_share=0.68, parts=2
    )


if __name__ == "__main__":
    main()
