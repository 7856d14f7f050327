"""What is sent to Azure ML, as plain values that are checked before anything is: no azure in here."""
