"""What leaves for MLflow, from a thread and a process of their own: a training never waits for it."""
