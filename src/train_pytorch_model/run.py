"""The component's entry script: `train` without the verb."""

from train_pytorch_model.commands.loading import ended_by_interrupts

if __name__ == "__main__":
    with ended_by_interrupts():
        from train_pytorch_model.commands.program import leave_after, run_command
        from train_pytorch_model.commands.train import Train
    leave_after(lambda: run_command(Train, prog="python -m train_pytorch_model.run"))
