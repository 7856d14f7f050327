"""Run by launchers and by trials: `injected.py INJECTIONS train ...` runs the program with faults.

They are written by `trials.as_text`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


def inject_and_run() -> None:
    """Inject the faults and run the program in this process."""
    from tests.faults.trials import inject
    from train_pytorch_model.__main__ import main
    from train_pytorch_model.commands.program import leave_after

    inject(sys.argv.pop(1))
    leave_after(main)


if __name__ == "__main__":
    inject_and_run()
