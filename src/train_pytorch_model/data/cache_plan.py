"""What is cached, and where it is in the cache's memory."""

from dataclasses import dataclass

from train_pytorch_model.quality.perceptual_hash import MAX_HASHED, NUM_BYTES

INDEX_BYTES = 16  # per image: the offset of its pixels, their height and width


@dataclass(frozen=True)
class Views:
    """The views of images whose features are computed once and cached (`features`)."""

    per_image: int  # 2 where training images may be mirrored, otherwise 1
    width: int  # features of a view
    itemsize: int  # bytes of a feature

    @property
    def num_bytes(self) -> int:
        """Bytes of an image: its features, and for each view whether they are known."""
        return self.per_image * (self.width * self.itemsize + 1)


@dataclass(frozen=True)
class CachePlan:
    """How many bytes of decoded images are cached."""

    num_training: int  # rows of the dataset, some of which may be left out
    num_validation: int
    budget: int  # bytes, for all processes that share the cache; 0 without a cache
    summary: str
    readers: int = 0  # reader processes per training process; 0 if it reads images itself
    views: Views | None = None

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation

    @property
    def is_hashed(self) -> bool:
        """Whether the file has a perceptual hash of each image, cached or not."""
        return self.num_images <= MAX_HASHED

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to cache."""
        return not (self.budget or self.is_hashed or self.views)

    @property
    def features(self) -> range:
        """The bytes of the file in which features are."""
        hash_bytes = NUM_BYTES if self.is_hashed else 0
        feature_bytes = self.views.num_bytes if self.views else 0
        start = (INDEX_BYTES + hash_bytes) * self.num_images
        return range(start, start + feature_bytes * self.num_images)

    @property
    def num_bytes(self) -> int:
        return self.features.stop + self.budget
