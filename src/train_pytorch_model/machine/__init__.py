"""The computer and its processes: cores, memory, priorities, liveness; independent of images and
training.
"""
