"""What is sent to Azure ML, as plain values that are checked first; and the service."""
