"""Tests: unit, ranks (several processes), programs (each verb), contract (the component), faults
and gpu.
"""
