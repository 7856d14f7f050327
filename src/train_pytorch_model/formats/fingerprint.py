"""The fingerprint of a run: what it depends on, from which an interrupted run is recognized.

parameters            --epochs 30 --batch-size 16 …
recipe                --image-size 224,224 …
initial_model         --architecture resnet18 …, of a model that `fit` makes
untrained_model       sha256, as are those of
training_dataset      the image list
validation_dataset    the image list
archive               sha256 of the archive that `fit` has unpacked
"""

from collections.abc import Iterator, Mapping

from train_pytorch_model.config.wording import flag, for_fit_or, given_by

# What `fit` calls entries that are directories or files, as it has no options for them.
NAMES_IN_FIT = {
    "untrained_model": "the initial model",
    "training_dataset": "the training part",
    "validation_dataset": "the validation part",
    "archive": "the archive",
}
OPTIONS = (
    "parameters",
    "recipe",
    "initial_model",
)  # the entries that hold options and their values


def differing_options(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the options of `after` that differ, with both values; empty values for directories."""
    for name, content in after.items():
        earlier = before.get(name, "")
        if name in OPTIONS:
            yield from _differing_values(_values(earlier), _values(content))
        elif content != earlier:
            yield name_of(name), "", ""


def name_of(entry: str) -> str:
    """Return what messages call an entry that is a directory or a file."""
    option = given_by(flag(entry))
    return for_fit_or(NAMES_IN_FIT.get(entry, option), option)


def _values(options: str) -> dict[str, str]:
    words = options.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def _differing_values(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    for option, value in after.items():
        if before.get(option) != value:
            yield given_by(option), before.get(option, "not set"), value
    for option, value in before.items():
        if option not in after:
            yield given_by(option), value, "not set"
