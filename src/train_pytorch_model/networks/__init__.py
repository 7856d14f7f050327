"""Networks before training: weights are loaded or initialized, and input sizes checked."""
