"""The directories on disk: one module per type, each with its layout in the docstring."""
