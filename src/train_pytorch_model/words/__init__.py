"""What is asked for, and what is said: parameters, recipe, errors, seeds, wording."""
