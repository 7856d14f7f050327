"""The inputs of a command, opened and checked against each other, and what is decided from them."""
