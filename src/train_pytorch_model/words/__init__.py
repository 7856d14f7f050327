"""What is asked for, and what is said: the settings of a run, errors and their wording."""
