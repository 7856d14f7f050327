"""One module per verb: its options, and the call that runs it."""
