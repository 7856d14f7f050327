"""What is kept beside an output until it is complete: the run's folder, its lock and its checkpoints."""
