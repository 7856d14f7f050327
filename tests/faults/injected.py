"""Run by launchers: `injected.py INJECTIONS train ...` is the program with faults, a JSON list of them.

Each is the name of a function of `injections` with its options, as `trials.Injection` has them.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


def inject_and_run() -> None:
    """The program, in this process."""
    from tests.faults import injections
    from train_pytorch_model.__main__ import main

    for name, options in json.loads(sys.argv.pop(1)):
        getattr(injections, name)(**options)
    main()


if __name__ == "__main__":
    inject_and_run()
