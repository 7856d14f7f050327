"""`python -m train_pytorch_model VERB …`, the same as `train-pytorch-model VERB …`."""

from train_pytorch_model import __version__
from train_pytorch_model.commands import exit_on_interrupt


def main() -> None:
    """Run the verb on this process's command line; exits with its status."""
    with exit_on_interrupt():
        from train_pytorch_model.commands.program import run_verbs
        from train_pytorch_model.commands.verbs import VERBS
    run_verbs(
        VERBS,
        prog="train-pytorch-model",
        description=f"Train image classifiers from folders of images. Version {__version__}.\n\n"
        "VERB --help lists a verb's options, with an example; --version prints the version.",
    )


def console_script() -> None:
    """Run `main` and end the process without the slow teardown of loaded libraries."""
    with exit_on_interrupt():
        from train_pytorch_model.commands.program import leave_after
    leave_after(main)


if __name__ == "__main__":
    console_script()
