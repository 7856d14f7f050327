"""Data sets before training: what `convert` and `split` do to image directories, and `fit` to a
folder.
"""
