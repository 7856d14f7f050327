"""The training loop: what a step, an epoch and a validation do, and what is kept of them on the way."""
