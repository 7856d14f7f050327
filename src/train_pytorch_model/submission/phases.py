"""The phases of a job, in words for who waits for it."""

WAITING = {
    "NotStarted": "Azure ML takes the job on",
    "Queued": "waiting for nodes of the cluster; one that must be started takes about 5 minutes",
    "Preparing": "the environment's image is built, which takes 10 to 20 minutes, but only the first time",
    "Provisioning": "nodes are being started",
    "Starting": "the nodes fetch the image and mount the data",
}
GOING_ON = {
    "Running": "",
    "Finalizing": "outputs and logs are being uploaded",
    "CancelRequested": "somebody has cancelled it",
}
COMPLETED = "Completed"


def explained(phase: str) -> str:
    """A phase, and what happens in it where that may take long."""
    reason = WAITING.get(phase) or GOING_ON.get(phase)
    return f"{phase}: {reason}" if reason else phase


def clock(elapsed_s: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
