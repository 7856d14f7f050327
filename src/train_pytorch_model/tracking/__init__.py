"""MLflow: a thread logs to a run as it trains; the trained directory becomes an MLflow model."""
