"""What is measured: evaluation of predictions, and where the time goes."""
