"""The processes that work together."""
