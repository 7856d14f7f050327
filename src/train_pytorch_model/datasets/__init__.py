"""Data sets before a training: image directories made of others, by `convert`, `split` and `transform`."""
