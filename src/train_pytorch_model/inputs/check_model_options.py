"""Whether options of an untrained model go together, checked before PyTorch is loaded."""

import os

from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.recipe import sides
from train_pytorch_model.config.wording import assignment, parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.inputs.decide import MAX_COMMON_SIDE


def check_model_options(options: ModelOptions) -> None:
    """Raise `ParameterError` for options that are unknown or do not go together."""
    _check_architecture(options)
    _check_options_of_families(options)
    _check_source_of_weights(options)
    _check_weights_file(options)
    _check_sizes(options)


def _check_architecture(options: ModelOptions) -> None:
    if not architectures.is_known(options.architecture):
        unknown = architectures.unknown_architecture_message(options.architecture)
        raise ParameterError(f"{parameter('architecture')} {unknown}")


def _check_options_of_families(options: ModelOptions) -> None:
    """Refuse an option that only another family of architectures has."""
    its_option = architectures.family_of(options.architecture).option
    for family in architectures.FAMILIES:
        if family.option and family.option != its_option and getattr(options, family.option):
            raise ParameterError(
                f"{parameter(family.option)} is an option of {family.class_name}, and"
                f" {parameter('architecture')} is {options.architecture}."
            )


def _check_source_of_weights(options: ModelOptions) -> None:
    """Refuse two sources, and the names of torchvision's weights for a model of timm."""
    sources = [options.pretrained, options.weights is not None, options.weights_file is not None]
    if sum(sources) > 1:
        raise ParameterError(
            f"{parameter('pretrained')}, {parameter('weights')} and {parameter('weights_file')} are"
            " mutually exclusive. Give one."
        )
    if options.weights is not None and architectures.is_of_timm(options.architecture):
        raise ParameterError(
            f"{parameter('weights')} {options.weights} is for torchvision's architectures. timm's"
            f" weights have tags: {assignment('architecture', 'timm:NAME.TAG')}, with"
            f" {parameter('pretrained')}."
        )


def _check_weights_file(options: ModelOptions) -> None:
    file = options.weights_file
    if file is None or os.path.isfile(file):
        return
    problem = "is not a file. Name an existing file."
    if not os.path.exists(file):
        problem = f"cannot be used: {explain_missing(file, 'file')}"
    raise ParameterError(f"{parameter('weights_file')} {file} {problem}")


def _check_sizes(options: ModelOptions) -> None:
    """Refuse sizes that the architecture does not take, or at which the model would not predict."""
    recipe = options.recipe
    fixed_side = architectures.family_of(options.architecture).image_size
    sizes = recipe.sizes_other_than(fixed_side)
    if fixed_side:
        problem = f"does not fit: a {options.architecture} takes {fixed_side} px only."
    elif recipe.image_size:
        return
    else:
        sizes = {name: size for name, size in sizes.items() if max(sides(size)) > MAX_COMMON_SIDE}
        problem = (
            f"needs an {parameter('image_size')} at least as large: without one, the model predicts"
            f" at {MAX_COMMON_SIDE} px at most."
        )
    if sizes:
        raise ParameterError(
            "\n".join(f"{parameter(name)} {size} {problem}" for name, size in sizes.items())
        )
