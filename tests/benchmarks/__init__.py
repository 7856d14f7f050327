"""Speed, scale and memory, each claim a command: `python -m tests.benchmarks.NAME`. Not part of the
tests.
"""
