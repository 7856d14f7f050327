"""From images on disk to batches on a device: who takes which, decoding, what is kept, what is random."""
