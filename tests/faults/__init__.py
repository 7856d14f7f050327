"""Real faults, injected into the real program in separate processes."""
