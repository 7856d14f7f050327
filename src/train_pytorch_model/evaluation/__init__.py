"""What predictions are worth: metrics of labelled images, their directory, a verdict."""
