"""From images on disk to batches on a device: sharding, decoding, caching and augmentation."""
