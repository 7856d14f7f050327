"""Run by launchers: `injected.py INJECTIONS train ...` runs the program with a JSON list of faults.

Each is as in `trials.Injection`.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


def inject_and_run() -> None:
    """Inject the faults and run the program in this process."""
    from tests.faults.injections import inject
    from train_pytorch_model.__main__ import main

    inject(json.loads(sys.argv.pop(1)))
    main()


if __name__ == "__main__":
    inject_and_run()
