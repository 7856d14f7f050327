"""What lies beside an output until it is whole: the run's folder, whose it is, and its checkpoints."""
