"""Tests: unit (floors 0 to 2), ranks (several processes), programs (each verb), contract (the component)."""
