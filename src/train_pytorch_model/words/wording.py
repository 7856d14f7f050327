"""Singular and plural."""


def counted(count: int, one: str, more: str) -> str:
    """`1 image`, `2,000 images`."""
    return f"{count:,} {one if count == 1 else more}"
