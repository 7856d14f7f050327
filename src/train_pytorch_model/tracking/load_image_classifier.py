"""What MLflow imports to load a published model, into which this file is copied.

MLflow imports by name, and a process has one module of a name: with `image_classifier` itself, the
second of two models would run the first one's code, and neither would load beside a user's package
of that name. So the model's copy of `image_classifier` is imported under a name made from its
content.
"""

import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


def _load_pyfunc(path: str, model_config: dict[str, Any]) -> Any:
    """Return the Python model that MLflow calls, for the weights file of a published model."""
    folder = Path(path).parent / "code" / "image_classifier"
    sources = b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))
    name = f"image_classifier_{hashlib.sha256(sources).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec
        assert spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return importlib.import_module(f"{name}.serving")._load_pyfunc(path, model_config)
