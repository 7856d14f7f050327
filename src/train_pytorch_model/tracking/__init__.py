"""MLflow: a thread logs to a run while training goes on; the trained directory becomes an MLflow
model.
"""
