"""Independent streams of randomness from the one seed of a run."""

import hashlib


def derive_seed(seed: int, *purpose: str | int) -> int:
    """A seed in [0, 2**63) for one purpose; any integer will do as `seed`, negative and huge ones too.

    Randomness is a pure function of what it is for, such as (seed, "order", epoch): the number of processes
    and of loader threads cannot change it, and nothing of it has to be saved.
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
