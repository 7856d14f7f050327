"""Train image classifiers from folders of images: the Azure ML component, and the same program at home."""

__version__ = "0.1.0"
