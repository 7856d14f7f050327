"""The computer and its processes: cores, memory, priorities, who lives; nothing of images or training."""
