"""`init-model`: write an untrained model directory."""

from dataclasses import dataclass

from train_pytorch_model.config.model_options import ModelOptions
from train_pytorch_model.config.options import OptionalPath, Switch
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.replacing import UNTRAINED
from train_pytorch_model.image_classifier import architectures
from train_pytorch_model.inputs.check_model_options import check_model_options
from train_pytorch_model.machine.console import logger, set_up


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
    overwrite: Switch = False
    """Replace the untrained model in the output, if it is whole, once the new one is complete."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the options, then write the directory."""
        if self.list:
            _print_architectures()
            return
        set_up(quiet=self.quiet)
        check_model_options(self)
        if self.output is None:
            raise ParameterError("--output is required: the model directory to write.")
        check_output(self.output, "output", kind=UNTRAINED, overwrite=self.overwrite)

        from train_pytorch_model.stories.init_model import initialize

        initialize(self, self.random_seed, self.output, not self.quiet, self.overwrite)
        logger.info(f"The untrained {self.architecture} is in {self.output}")


def _print_architectures() -> None:
    for family in architectures.FAMILIES:
        print(f"{family.class_name}: {' '.join(family.architectures)}")
    print("timm, if installed: timm:NAME, any of timm.list_models()")
