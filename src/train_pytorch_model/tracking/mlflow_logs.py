"""What MLflow logs."""

import logging


def hush_mlflow() -> None:
    """Have MLflow log warnings only, once it is imported: a new store logs every migration."""
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
