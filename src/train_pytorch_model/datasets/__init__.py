"""Data sets before training: what `convert`, `split` and `transform` do to image directories."""
