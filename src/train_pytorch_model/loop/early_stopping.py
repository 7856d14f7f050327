"""Early stopping, exactly as the component documents it."""

import math


class Patience:
    """Counts consecutive epochs whose validation loss was not lower than the previous epoch's.

    A lower loss resets the count. NaN and infinity are never lower, and the next epoch is compared with
    the last finite loss. With patience 3 and losses 1.0, 0.9, 0.9, 0.95, 0.95 training stops after epoch 5:
    epochs 3, 4 and 5 were not lower than the one before.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.spent = 0
        self.previous_loss = math.inf

    def observe(self, validation_loss: float) -> None:
        """Record the loss of the epoch that has just been validated."""
        improved = validation_loss < self.previous_loss  # False for NaN
        self.spent = 0 if improved else self.spent + 1
        if math.isfinite(validation_loss):
            self.previous_loss = validation_loss

    @property
    def is_exhausted(self) -> bool:
        return self.spent >= self.patience
