"""The component's entry script: `train` without the verb."""

from train_pytorch_model.commands import exit_on_interrupt

if __name__ == "__main__":
    with exit_on_interrupt():
        from train_pytorch_model.commands.program import leave_after, run_command
        from train_pytorch_model.commands.train import Train
    leave_after(lambda: run_command(Train, prog="python -m train_pytorch_model.run"))
