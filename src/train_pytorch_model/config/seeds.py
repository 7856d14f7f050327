"""A seed for each purpose."""

import hashlib


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a seed in [0, 2**63) for one purpose; `seed` may be any integer, however large.

    Randomness is a pure function of its purpose, such as (seed, "order", epoch): it does not depend
    on the number of processes or loader threads, and no generator state has to be saved.
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
