"""Pictures of images whose category is probably wrong."""

from collections.abc import Sequence

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import Colours
from train_pytorch_model.measures.suspects import SUSPECTS, Suspect
from train_pytorch_model.pages.gallery import Card, Fact, Gallery
from train_pytorch_model.pages.page import thumbnail
from train_pytorch_model.words.wording import counted

MAX_SUSPECTS = 12  # with their pictures


def suspects_gallery(
    suspects: Sequence[Suspect], data_sets: Sequence[ImageDirectory], colours: Colours
) -> list[Gallery]:
    """The most suspicious images of these data sets; no gallery if there is none."""
    if not suspects:
        return []
    roots = {images.port: images.root for images in data_sets}
    cards = [
        Card(
            [thumbnail(roots[suspect.dataset] / suspect.file, colours)],
            [
                Fact("given", suspect.given, f"{suspect.score:.1%}"),
                Fact("rather", suspect.proposed),
                Fact("in", suspect.dataset.lower()),
            ],
            [suspect.original or suspect.file],
        )
        for suspect in suspects[:MAX_SUSPECTS]
    ]
    text = (
        f"{counted(len(suspects), 'image', 'images')} may have a wrong category; `{SUSPECTS}` lists all. Of"
        " training images, the model kept preferring another category while it learned them; of validation"
        " images, it is sure of another one. The percentages are what it gives the category of the image."
        " Correct what is wrong and train again."
    )
    return [Gallery("suspects", "Look at these first", text, cards)]
