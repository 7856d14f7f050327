"""The training of a run: its plan, its engine, its state, and the loops over batches."""
