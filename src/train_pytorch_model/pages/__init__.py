"""The HTML pages `report.html` and `evaluation.html`, each a single file that loads nothing else."""
