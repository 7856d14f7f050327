"""Logging to MLflow, from a separate thread and process, so that training never waits for it."""
