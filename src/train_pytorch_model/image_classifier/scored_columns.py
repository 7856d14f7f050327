"""The columns in which predictions come, in a scored dataset and from a served model alike."""

IMAGE_COLUMN = "image"
"""What a served model takes: image files as base64."""
PROBABILITY_PREFIX = "Scored Probabilities_"
LABEL_COLUMN = "Scored Labels"
