"""What a browser shows: `report.html` and `evaluation.html`, each one file that loads nothing else."""
