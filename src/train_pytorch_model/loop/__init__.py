"""The training loop: steps, epochs and validation, and the state that is kept of them."""
