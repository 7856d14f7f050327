"""Predicting the images of a directory, and what spoke for a prediction."""
