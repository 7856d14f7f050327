"""Under which licences pretrained weights are, as their authors state it.

timm records a licence for its weights. torchvision's package, and the weights that it offers, are
under the BSD 3-clause licence (https://github.com/pytorch/vision/blob/main/LICENSE), but for those
that name another one in their description: the SWAG weights are CC BY-NC 4.0.
"""

from typing import Any

from train_pytorch_model.image_classifier import architectures

OF_TORCHVISION = "bsd-3-clause"
OF_SWAG = "cc-by-nc-4.0"
# Names, or parts of them, of licences that allow research or private use only, or ask for more than
# to be named: of derived works, for example.
RESTRICTED = (
    "-nc",
    "noncommercial",
    "non-commercial",
    "research",
    "apple",
    "amlr",
    "dinov3",
    "fair",
)


def licence_of(architecture: str, weights: Any = None) -> str:
    """Return the licence of an architecture's weights, the default ones unless named.

    It is empty if it is not known. `weights` are torchvision's.
    """
    if not architectures.is_of_timm(architecture):
        meta = {} if weights is None else weights.meta
        return OF_SWAG if "swag" in str(meta.get("license", "")).lower() else OF_TORCHVISION
    import timm

    config = timm.get_pretrained_cfg(architecture.removeprefix(architectures.TIMM))
    return str(getattr(config, "license", None) or "").lower()


def is_restricted(licence: str) -> bool:
    """Return whether a licence is known not to allow every use."""
    return any(part in licence.lower() for part in RESTRICTED)


def describe_licence(licence: str) -> str:
    """Return what the licence of weights means for whoever uses the model, as a sentence."""
    if is_restricted(licence):
        return (
            f"The weights are under {licence}, which does not allow every use, such as a commercial"
            " one: read it before you use the model for more than research."
        )
    return f"The weights are under {licence}."
