"""What is sent to Azure ML, as plain values that are checked first. Nothing here imports azure."""
