"""`python -m train_pytorch_model VERB …`, the same as `train-pytorch-model VERB …`."""

from collections.abc import Mapping

from train_pytorch_model import __version__
from train_pytorch_model.commands.convert import Convert
from train_pytorch_model.commands.evaluate import Evaluate
from train_pytorch_model.commands.export import Export
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.init_transformation import InitTransformation
from train_pytorch_model.commands.program import Command, leave_after, run_verbs
from train_pytorch_model.commands.quickstart import Quickstart
from train_pytorch_model.commands.score import Score
from train_pytorch_model.commands.split import Split
from train_pytorch_model.commands.submit import Submit
from train_pytorch_model.commands.train import Train
from train_pytorch_model.commands.transform import Transform

VERBS: Mapping[str, type[Command]] = {
    "train": Train,
    "init-model": InitModel,
    "score": Score,
    "evaluate": Evaluate,
    "export": Export,
    "submit": Submit,
    "convert": Convert,
    "split": Split,
    "init-transformation": InitTransformation,
    "transform": Transform,
    "quickstart": Quickstart,
}


def main() -> None:
    """Run the verb of this process's command line; exits with its status."""
    run_verbs(
        VERBS,
        prog="train-pytorch-model",
        description=f"Train image classifiers from folders of images. Version {__version__}.\n\n"
        "VERB --help lists a verb's options, with an example; --version prints the version.",
    )


def console_script() -> None:
    """The same, as all that this process does."""
    leave_after(main)


if __name__ == "__main__":
    console_script()
