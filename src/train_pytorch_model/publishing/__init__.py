"""From the best epoch of a run to the trained model directory."""
