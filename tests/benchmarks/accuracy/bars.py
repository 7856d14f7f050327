"""Paint elongated images whose category is a bar at the left edge, which a centre crop cuts off."""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT, BAR = 620, 260, 40  # px
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 200, 40),
    "blue": (40, 60, 220),
    "white": (240, 240, 240),
}
COUNTS = {"train": 60, "val": 20}  # of each category


def main() -> None:
    """Write class folders into `train/` and `val/`, the same ones each time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    root = parser.parse_args().output
    random = np.random.default_rng(1)
    for part, count in COUNTS.items():
        for category, colour in COLOURS.items():
            folder = root / part / category
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = np.full((HEIGHT, WIDTH, 3), random.integers(60, 180, 3), np.int16)
                pixels[:, :BAR] = colour
                noise = random.integers(-40, 41, (HEIGHT, WIDTH, 3))
                Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8)).save(
                    folder / f"{number}.jpg"
                )


if __name__ == "__main__":
    main()
