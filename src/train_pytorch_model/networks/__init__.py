"""Networks before training: weights are loaded, downloaded or initialized, and input sizes checked."""
