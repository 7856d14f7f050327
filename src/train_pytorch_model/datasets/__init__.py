"""Data sets before training: image directories written by `convert`, `split` and `transform`."""
