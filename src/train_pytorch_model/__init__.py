"""Train image classifiers from folders of images: as an Azure ML component, or on any machine.

In Python, after `from train_pytorch_model import fit`:

    model = fit("photographs", epochs=5)
    model.predict("new")
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from train_pytorch_model.api.fit import fit as fit
    from train_pytorch_model.api.jobs import Job as Job
    from train_pytorch_model.api.jobs import find_job as find_job
    from train_pytorch_model.api.jobs import submit as submit
    from train_pytorch_model.api.model import Model as Model
    from train_pytorch_model.api.model import load as load

__version__ = "0.1.0"
__all__ = ["Job", "Model", "find_job", "fit", "load", "submit"]
_MODULES = {
    "fit": "fit",
    "Model": "model",
    "load": "model",
    "Job": "jobs",
    "find_job": "jobs",
    "submit": "jobs",
}


def __getattr__(name: str) -> Any:
    """Import what Python programs use when they ask for it: the command line does not."""
    if name in _MODULES:
        module = importlib.import_module(f"{__name__}.api.{_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
