"""Pictures of images that look alike."""

from collections.abc import Sequence

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import Colours
from train_pytorch_model.measures.twins import TWINS, TwinRow
from train_pytorch_model.pages.gallery import Card, Fact, Gallery
from train_pytorch_model.pages.page import thumbnail
from train_pytorch_model.words.wording import counted

MAX_TWINS = 12  # pairs, with their pictures


def twins_gallery(
    rows: Sequence[TwinRow], data_sets: Sequence[ImageDirectory], colours: Colours
) -> list[Gallery]:
    """The first pairs; no gallery if there is none."""
    if not rows:
        return []
    roots = {images.port: images.root for images in data_sets}
    cards = [
        Card(
            [
                thumbnail(roots[row.port] / row.file_name, colours),
                thumbnail(roots[row.other_port] / row.other_file_name, colours),
            ],
            [
                Fact(row.port.partition(" ")[0].lower(), row.category),
                Fact(row.other_port.partition(" ")[0].lower(), row.other_category, row.kind),
            ],
            [row.file_name, row.other_file_name],
        )
        for row in rows[:MAX_TWINS]
    ]
    pairs = counted(len(rows), "pair of images looks", "pairs of images look")
    text = f"{pairs} alike; `{TWINS}` lists them. Pairs in different categories come first."
    return [Gallery("twins", "Images that look alike", text, cards)]
