"""Accuracy of trained models: recipes compared on real images over several seeds."""
