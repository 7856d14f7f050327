"""The description of a trained classifier, apart from its weights; imports no torch."""

from dataclasses import dataclass
from typing import Any

from .decoding import AS_USUAL, Colours
from .preprocessing import Framing


@dataclass(frozen=True)
class ClassifierSpec:
    """A model's architecture, categories and input, as plain values that a file can hold."""

    architecture: str
    option: bool
    categories: tuple[str, ...]
    """Class index → name."""
    framing: Framing
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def as_mapping(self) -> dict[str, Any]:
        return {
            "architecture": self.architecture,
            "option": self.option,
            "categories": list(self.categories),
            "height": self.framing.height,
            "width": self.framing.width,
            "crop_fraction": self.framing.crop_fraction,
            "framing": self.framing.mode,
            "mean": list(self.mean),
            "std": list(self.std),
            "white_level": self.framing.colours.white_level,
            "background": list(self.framing.colours.background),
        }

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> "ClassifierSpec":
        framing = Framing(
            values["height"],
            values["width"],
            values["crop_fraction"],
            values.get("framing", "crop"),
            Colours(
                values.get("white_level", AS_USUAL.white_level),
                tuple(values.get("background", AS_USUAL.background)),
            ),
        )
        categories, mean, std = (tuple(values[name]) for name in ("categories", "mean", "std"))
        return cls(values["architecture"], values["option"], categories, framing, mean, std)
