"""Faults that are really injected, into the real program in processes of their own."""
