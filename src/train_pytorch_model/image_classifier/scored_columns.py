"""The columns of predictions, in a scored dataset and from a served model alike."""

IMAGE_COLUMN = "image"
"""The input of a served model: base64-encoded image files."""
PROBABILITY_PREFIX = "Scored Probabilities_"
LABEL_COLUMN = "Scored Labels"
