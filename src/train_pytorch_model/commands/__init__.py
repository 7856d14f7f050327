"""One module a verb: its options, and one call of its story."""
