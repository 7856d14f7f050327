"""Train image classifiers from folders of images: as an Azure ML component, or on any machine."""

__version__ = "0.1.0"
