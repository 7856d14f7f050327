"""`init-model`: write an untrained model directory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.reading import explain_missing
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.inputs.decide import MAX_COMMON_SIDE
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.words.errors import ParameterError, parameter
from train_pytorch_model.words.settings import OptionalName, OptionalPath, Recipe, Switch, flag, sides


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What an untrained model is: its architecture, initial weights and recipe."""

    architecture: Annotated[str, tyro.conf.arg(metavar="NAME")] = "resnet18"
    """One of torchvision's, such as resnet50 (`init-model --list`), or timm:NAME, if timm is installed."""
    pretrained: Switch = False
    """Start from the best ImageNet weights of torchvision, or from timm's; downloads them."""
    weights: OptionalName = None
    """Start from the torchvision weights of this name, such as IMAGENET1K_V1; downloads them."""
    weights_file: OptionalPath = None
    """Start from the weights in this file: safetensors, or a state dict or checkpoint of torch.save."""
    zero_init_residual: Switch = False
    """ResNet only: initialize every residual block as the identity."""
    memory_efficient: Switch = False
    """DenseNet only: save memory in training by recomputing activations, which takes more time."""
    recipe: tyro.conf.OmitArgPrefixes[Recipe] = field(default_factory=Recipe)

    def check(self) -> None:
        """Raise `ParameterError` for options that are unknown or do not go together."""
        if not architectures.is_known(self.architecture):
            unknown = architectures.unknown_architecture_message(self.architecture)
            raise ParameterError(f"--architecture {unknown}")
        own = architectures.family_of(self.architecture).option
        for family in architectures.FAMILIES:
            if family.option and family.option != own and getattr(self, family.option):
                raise ParameterError(
                    f"{flag(family.option)} is an option of {family.class_name}, and"
                    f" --architecture is {self.architecture}."
                )
        if self.pretrained + (self.weights is not None) + (self.weights_file is not None) > 1:
            options = "--pretrained, --weights and --weights-file"
            raise ParameterError(f"{options} are mutually exclusive. Give one.")
        if self.weights is not None and architectures.is_of_timm(self.architecture):
            raise ParameterError(
                f"--weights {self.weights} is for torchvision's architectures. timm's weights have tags:"
                " --architecture timm:NAME.TAG --pretrained."
            )
        if self.weights_file is not None and not self.weights_file.is_file():
            problem = "is not a file. Name an existing file."
            if not self.weights_file.exists():
                problem = f"cannot be used: {explain_missing(self.weights_file, 'file')}"
            raise ParameterError(f"--weights-file {self.weights_file} {problem}")
        if problems := [*self._size_problems()]:
            raise ParameterError("\n".join(problems))

    def write(self, output: Path, random_seed: int, shows_download: bool) -> None:
        """Write the untrained model directory; loads PyTorch. Raises what `initialize` raises."""
        from train_pytorch_model.stories.init_model import initialize

        initialize(
            self.architecture,
            self.zero_init_residual or self.memory_efficient,  # as checked, the architecture's own
            "DEFAULT" if self.pretrained else self.weights,
            self.weights_file,
            random_seed,
            self.recipe,
            output,
            shows_download=shows_download,
        )

    def _size_problems(self) -> Iterator[str]:
        """Yield the image sizes that the architecture or the recipe rules out, each with the reason."""
        fixed_side = architectures.family_of(self.architecture).image_size
        for name, size in self.recipe.sizes_other_than(fixed_side).items():
            given = f"{parameter(name)} {size}"
            if fixed_side:
                yield f"{given} does not fit: a {self.architecture} takes {fixed_side} px only."
            elif not self.recipe.image_size and max(sides(size)) > MAX_COMMON_SIDE:
                yield (
                    f"{given} needs an {parameter('image_size')} at least as large: without one, the model"
                    f" predicts at {MAX_COMMON_SIDE} px at most."
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
        self.check()
        if self.output is None:
            raise ParameterError("--output is required: the model directory to write.")
        check_output(self.output, "output")
        self.write(self.output, self.random_seed, shows_download=not self.quiet)
        logger.info(f"The untrained {self.architecture} is in {self.output}")
