"""The columns in which predictions come, in a scored dataset and from a served model alike."""

PROBABILITY_PREFIX = "Scored Probabilities_"
LABEL_COLUMN = "Scored Labels"
