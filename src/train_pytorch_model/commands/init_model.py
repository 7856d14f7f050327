"""`init-model`: write an untrained model directory."""

import os
from dataclasses import dataclass

from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.options import OptionalPath, Switch
from train_pytorch_model.config.recipe import sides
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.reading import explain_missing
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.inputs.decide import MAX_COMMON_SIDE
from train_pytorch_model.machine.console import logger, set_up


def check(options: ModelOptions) -> None:
    """Raise `ParameterError` for options that are unknown or do not go together."""
    if not architectures.is_known(options.architecture):
        unknown = architectures.unknown_architecture_message(options.architecture)
        raise ParameterError(f"{parameter('architecture')} {unknown}")
    own = architectures.family_of(options.architecture).option
    for family in architectures.FAMILIES:
        if family.option and family.option != own and getattr(options, family.option):
            raise ParameterError(
                f"{parameter(family.option)} is an option of {family.class_name}, and"
                f" {parameter('architecture')} is {options.architecture}."
            )
    if options.pretrained + (options.weights is not None) + (options.weights_file is not None) > 1:
        names = parameter("pretrained"), parameter("weights"), parameter("weights_file")
        raise ParameterError("{}, {} and {} are mutually exclusive. Give one.".format(*names))
    if options.weights is not None and architectures.is_of_timm(options.architecture):
        raise ParameterError(
            f"{parameter('weights')} {options.weights} is for torchvision's architectures. timm's"
            " weights"
            f" have tags: {parameter('architecture')} timm:NAME.TAG {parameter('pretrained')}."
        )
    if options.weights_file is not None and not os.path.isfile(options.weights_file):
        problem = "is not a file. Name an existing file."
        if not os.path.exists(options.weights_file):
            problem = f"cannot be used: {explain_missing(options.weights_file, 'file')}"
        raise ParameterError(f"{parameter('weights_file')} {options.weights_file} {problem}")
    problem = ""
    if fixed_side := architectures.family_of(options.architecture).image_size:
        problem = f"does not fit: a {options.architecture} takes {fixed_side} px only."
    elif not options.recipe.image_size:
        problem = (
            f"needs an {parameter('image_size')} at least as large: without one, the model predicts"
            " at"
            f" {MAX_COMMON_SIDE} px at most."
        )
    sizes = options.recipe.sizes_other_than(fixed_side).items()
    wrong = [
        (name, size) for name, size in sizes if fixed_side or max(sides(size)) > MAX_COMMON_SIDE
    ]
    if problem and wrong:
        raise ParameterError(
            "\n".join(f"{parameter(name)} {size} {problem}" for name, size in wrong)
        )


@dataclass(frozen=True, kw_only=True)
class InitModel(ModelOptions):
    """Write an untrained model directory: architecture, initial weights and training recipe."""

    EXAMPLE = "--architecture resnet18 --pretrained --output untrained"

    output: OptionalPath = None
    """Model directory to write; must be new or empty. Required, but for --list."""
    list: Switch = False
    """Print the architectures, and write nothing."""
    random_seed: int = 1
    """Seed for the initial weights. Any integer."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the options, then write the directory."""
        if self.list:
            for family in architectures.FAMILIES:
                print(f"{family.class_name}: {' '.join(family.architectures)}")
            print("timm, if installed: timm:NAME, any of timm.list_models()")
            return
        set_up(quiet=self.quiet)
        check(self)
        if self.output is None:
            raise ParameterError("--output is required: the model directory to write.")
        check_output(self.output, "output")
        from train_pytorch_model.stories.init_model import initialize

        initialize(self, self.random_seed, self.output, shows_download=not self.quiet)
        logger.info(f"The untrained {self.architecture} is in {self.output}")
