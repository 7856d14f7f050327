"""Networks before training: weights are loaded, downloaded or initialised, and input sizes checked."""
