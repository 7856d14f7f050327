"""How people call the parts of a data set: their folders, their tables, the values of a column."""

import re
from collections.abc import Iterable

TRAINING = "training"
VALIDATION = "validation"
TEST = "test"
PARTS = (TRAINING, VALIDATION, TEST)

_EVALUATION = "evaluation"  # validation, or the test if there is a validation already
_WORDS = {
    TRAINING: "train training trainings trn entrenamiento entrainement apprentissage",
    VALIDATION: "val valid validation validate validierung validierungs dev development tune",
    TEST: "test testing tests tst holdout heldout privatetest prueba",
    _EVALUATION: "eval evaluation publictest",
}
_PART_OF = {word: part for part, words in _WORDS.items() for word in words.split()}
# What stands beside the word: `train_set`, `Trainingsdaten`, `training_images`, `train2017`.
_FILLERS = (
    "set|sets|data|dataset|daten|datensatz|split|part|folder|files|labels|label|annotations|"
    "images|image|imgs|img|photos|photographs|pictures|pics|bilder|fotos"
)
_FILLER = re.compile(_FILLERS)
_GLUED = re.compile(rf"(?:{_FILLERS})$")
_SEPARATORS = re.compile(r"[\W_]+")


def parts_of(names: Iterable[str]) -> dict[str, str]:
    """Return which part each name stands for; names that stand for none are left out."""
    parts = {}
    for name in names:
        part = _part_of(name)
        if part:
            parts[name] = part
    evaluation = TEST if VALIDATION in parts.values() else VALIDATION
    return {name: evaluation if part == _EVALUATION else part for name, part in parts.items()}


def is_container(name: str) -> bool:
    """Return whether a folder is called after what is in it, such as `images_2`: no category."""
    words = [word.rstrip("0123456789") for word in _SEPARATORS.split(name.lower())]
    return any(_FILLER.fullmatch(word) or word in ("mask", "masks") for word in words)


def _part_of(name: str) -> str:
    """Return the part, or an empty text."""
    words = [word for word in _SEPARATORS.split(name.lower()) if word and not word.isdigit()]
    telling = [word for word in words if not _FILLER.fullmatch(word)]
    key = "".join(telling).rstrip("0123456789")
    return _PART_OF.get(key) or _PART_OF.get(_GLUED.sub("", key), "")
