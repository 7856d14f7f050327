"""The component's entry script: `train` without the verb."""

from train_pytorch_model.commands.program import run_command
from train_pytorch_model.commands.train import Train

if __name__ == "__main__":
    run_command(Train, prog="python -m train_pytorch_model.run")
