"""The time that a run may take, counted from its start; without a limit, it is never up."""

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class TimeLimit:
    """An instant at which training ends, wherever it is."""

    ends_at: float = math.inf  # by `time.monotonic`

    @property
    def left_s(self) -> float:
        """Return the seconds left; negative when it is up, infinite without a limit."""
        return self.ends_at - time.monotonic()

    @property
    def is_up(self) -> bool:
        return self.left_s <= 0


NO_LIMIT = TimeLimit()
TIME_IS_UP = TimeLimit(-math.inf)
