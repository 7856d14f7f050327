"""The phases of a job, explained to the user who waits for it."""

WAITING = {
    "NotStarted": "Azure ML is accepting the job",
    "Queued": "waiting for nodes of the cluster; starting one takes about 5 minutes",
    "Preparing": "building the environment's image, which takes 10 to 20 minutes, but only the first time",
    "Provisioning": "starting nodes",
    "Starting": "the nodes are pulling the image and mounting the data",
}
ACTIVE = {
    "Running": "",
    "Finalizing": "outputs and logs are being uploaded",
    "CancelRequested": "the job is being cancelled",
}
COMPLETED = "Completed"


def explained(phase: str) -> str:
    """Return the phase, followed by what happens in it where that is not obvious."""
    reason = WAITING.get(phase) or ACTIVE.get(phase)
    return f"{phase}: {reason}" if reason else phase


def clock(elapsed_s: float) -> str:
    """Format a duration as h:mm:ss."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
