"""Real processes, over gloo: what several must do exactly as one would."""
