"""Model of a ResNet-50 training step on 8 and 64 GPUs: compute, all-reduce, input.

    python -m tests.benchmarks.cost_model [--batch-size 64] [--parameters 25557032]
        [--decoded-per-core 419]

Prints the tables of .github/SCALING.md, which gives the sources of the figures and how far to trust
them.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

BACKWARD = 2 / 3  # share of a step's compute: twice the forward pass
BUCKET_BYTES = 25 << 20  # DistributedDataParallel's default; a bucket is reduced as a whole
GRADIENT_BYTES = 4  # float32, whatever the precision of the forward pass
HOP_S = 5e-6  # from one GPU of a ring to the next, whatever the message size
USABLE_NETWORK = 0.8  # share of the line rate, after protocol overhead
TRAINING_IMAGES, VALIDATION_IMAGES = 1_281_167, 50_000  # ImageNet's
IMAGE_BYTES = 110_000  # the mean of its JPEGs
EPOCHS = 50


@dataclass(frozen=True)
class Cluster:
    """Nodes of one type, with the rate of a GPU that trains ResNet-50 at 224 px in 16 bits."""

    name: str
    gpu: str
    images_per_second: float
    """Of one GPU, while all GPUs of its node train."""
    gpus_per_node: int
    link_bytes_per_second: float
    """Bandwidth that an all-reduce within a node reaches over NVLink."""
    network_bytes_per_second: float
    """Line rate of all network cards of a node together."""
    cores: int


V100 = Cluster("ND40rs_v2", "V100", 8322 / 8, 8, 130e9, 100e9 / 8, 40)
A100 = Cluster("ND96asr_v4", "A100", 16_621 / 8, 8, 230e9, 8 * 200e9 / 8, 96)
H100 = Cluster("ND96isr_H100_v5", "H100", 7172, 8, 370e9, 8 * 400e9 / 8, 96)
CLUSTERS = (V100, A100, H100)
# One H100's ResNet-50 at 224 px, `tests.benchmarks.gpu_steps`: a step of 16 images takes 30.7 ms if
# Python launches its kernels, and 6.1 ms replayed; one of 256 images 63.1 ms replayed. In between,
# a line.
LAUNCHING_S = 16 / 522
PER_STEP_S, PER_IMAGE_S = 0.00234, 0.0002374
CLASSIC = {8: ("1,670", "12 h 21 min"), 16: ("3,200", "6 h 22 min")}  # V100s → images/s, 50 epochs


@dataclass(frozen=True)
class Job:
    """The model to train, and the rates of a core that prepares images."""

    batch_size: int = 64
    parameters: int = 25_557_032
    decoded_per_core: float = 419
    """Images per second, from JPEG to crop."""
    cropped_per_core: float = 4783
    """Images per second, from an image in the decode cache to its crop."""

    @property
    def gradient_bytes(self) -> int:
        return self.parameters * GRADIENT_BYTES


@dataclass(frozen=True)
class Step:
    """Durations of one step, and the images it needs."""

    compute_s: float
    all_reduce_s: float
    exposed_s: float
    """Part of the all-reduce that the backward pass does not hide."""
    input_s: float
    """Time that all cores of a node need to prepare its images."""
    images: int
    """Of all GPUs."""
    images_of_a_node: int

    @property
    def wanted_s(self) -> float:
        """Duration of the step if it never waits for images."""
        return self.compute_s + self.exposed_s

    @property
    def seconds(self) -> float:
        """Duration of the step; the images of the next steps are decoded meanwhile."""
        return max(self.wanted_s, self.input_s)


def step_of(job: Job, cluster: Cluster, num_gpus: int, is_cached: bool = False) -> Step:
    """Return one step on `num_gpus` GPUs, on as few nodes as hold them."""
    compute_s = job.batch_size / cluster.images_per_second
    reduce_s = all_reduce_s(job.gradient_bytes, cluster, num_gpus)
    last_share = min(
        1.0, BUCKET_BYTES / job.gradient_bytes
    )  # the last bucket, ready after the backward pass
    images_of_a_node = job.batch_size * min(num_gpus, cluster.gpus_per_node)
    per_core = job.cropped_per_core if is_cached else job.decoded_per_core
    return Step(
        compute_s=compute_s,
        all_reduce_s=reduce_s,
        exposed_s=max(last_share * reduce_s, reduce_s - BACKWARD * compute_s),
        input_s=images_of_a_node / (cluster.cores * per_core),
        images=job.batch_size * num_gpus,
        images_of_a_node=images_of_a_node,
    )


def eager_s(job: Job, num_gpus: int) -> float:
    """Return the duration of a step of H100s in DDP: launched kernel by kernel, and reduced
    meanwhile.
    """
    compute_s = max(LAUNCHING_S, PER_STEP_S + PER_IMAGE_S * job.batch_size)
    reduce_s = all_reduce_s(job.gradient_bytes, H100, num_gpus)
    last_share = min(1.0, BUCKET_BYTES / job.gradient_bytes)
    return compute_s + max(last_share * reduce_s, reduce_s - BACKWARD * compute_s)


def replayed_s(job: Job, num_gpus: int) -> float:
    """Return the duration of a step of H100s in CUDA graphs: all gradients are reduced after the
    last one.
    """
    compute_s = PER_STEP_S + PER_IMAGE_S * job.batch_size
    return compute_s + all_reduce_s(
        job.gradient_bytes, H100, num_gpus, bucket_bytes=job.gradient_bytes
    )


def all_reduce_s(
    gradient_bytes: int, cluster: Cluster, num_gpus: int, bucket_bytes: int = BUCKET_BYTES
) -> float:
    """Return the duration of a ring all-reduce.

    Each of n GPUs sends 2 (n - 1) / n of the gradients, in 2 (n - 1) messages per bucket. In a ring
    over several nodes, each node has one neighbour outside, so its network carries what one GPU
    sends.
    """
    bandwidth = cluster.link_bytes_per_second
    if num_gpus > cluster.gpus_per_node:
        bandwidth = min(bandwidth, USABLE_NETWORK * cluster.network_bytes_per_second)
    buckets = math.ceil(gradient_bytes / bucket_bytes)
    share = 2 * (num_gpus - 1) / num_gpus
    return share * gradient_bytes / bandwidth + buckets * 2 * (num_gpus - 1) * HOP_S


def first_exposed(job: Job, cluster: Cluster) -> int:
    """Return the fewest GPUs whose all-reduce outlasts the backward pass that hides it."""
    backward_s = BACKWARD * job.batch_size / cluster.images_per_second
    num_gpus = 2
    while all_reduce_s(job.gradient_bytes, cluster, num_gpus) <= backward_s:
        num_gpus += 1
    return num_gpus


def smallest_batch(job: Job, cluster: Cluster, num_gpus: int) -> int:
    """Return the images per GPU whose backward pass takes as long as the all-reduce of the
    gradients.
    """
    reduce_s = all_reduce_s(job.gradient_bytes, cluster, num_gpus)
    return math.ceil(reduce_s * cluster.images_per_second / BACKWARD)


def training_s(job: Job, cluster: Cluster, num_gpus: int) -> float:
    """Return the duration of all ImageNet epochs, with validation, which has no backward pass."""
    rate = rate_of(step_of(job, cluster, num_gpus))
    return EPOCHS * (TRAINING_IMAGES + (1 - BACKWARD) * VALIDATION_IMAGES) / rate


def rate_of(step: Step) -> float:
    """Return images per second of all GPUs together."""
    return step.images / step.seconds


def step_table(job: Job) -> Iterator[str]:
    """Yield the table of a step's time."""
    yield (
        "| nodes of | GPUs | compute, ms | all-reduce, ms | exposed, ms | input, ms | step, ms"
        " | images/s | of ideal |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for cluster in CLUSTERS:
        for num_gpus in (8, 64):
            step = step_of(job, cluster, num_gpus)
            ideal = num_gpus * cluster.images_per_second
            parts = (step.compute_s, step.all_reduce_s, step.exposed_s, step.input_s, step.seconds)
            times = " | ".join(f"{1e3 * seconds:.1f}" for seconds in parts)
            yield (
                f"| {cluster.name} ({cluster.gpu}) | {num_gpus} | {times} | {_round(rate_of(step))}"
                f" | {rate_of(step) / ideal:.0%} |"
            )


def replayed_table(job: Job) -> Iterator[str]:
    """Yield the table of what replaying gains, by the images that a GPU takes in a step."""
    yield "| H100s | images per GPU | eager, ms | images/s | replayed, ms | images/s | gain |"
    yield "|---|---|---|---|---|---|---|"
    for num_gpus in (8, 64):
        for batch_size in (16, 64, 256):
            small = replace(job, batch_size=batch_size)
            before, after = eager_s(small, num_gpus), replayed_s(small, num_gpus)
            images = batch_size * num_gpus
            yield (
                f"| {num_gpus} | {batch_size} | {1e3 * before:.1f} | {_round(images / before)}"
                f" | {1e3 * after:.1f} | {_round(images / after)} | {before / after:.2f} x |"
            )


def input_table(job: Job) -> Iterator[str]:
    """Yield the table of what a node has to decode and read so that its GPUs never wait."""
    yield (
        "| nodes of | images/s a node | cores to decode them | cores from the cache | cores"
        " available | MB/s to read |"
    )
    yield "|---|---|---|---|---|---|"
    for cluster in CLUSTERS:
        step = step_of(job, cluster, 64)
        rate = step.images_of_a_node / step.wanted_s
        cores = (
            math.ceil(rate / per_core) for per_core in (job.decoded_per_core, job.cropped_per_core)
        )
        yield (
            f"| {cluster.name} | {_round(rate)} | {' | '.join(map(str, cores))} | {cluster.cores}"
            f" | {_round(rate * IMAGE_BYTES / 1e6)} |"
        )


def limit_table(job: Job) -> Iterator[str]:
    """Yield the table of where the all-reduce stops being hidden."""
    yield (
        "| nodes of | GPUs from which communication is exposed | images per GPU that hide it on"
        " 64 GPUs |"
    )
    yield "|---|---|---|"
    for cluster in CLUSTERS:
        yield (
            f"| {cluster.name} | {first_exposed(job, cluster):,} |"
            f" {smallest_batch(job, cluster, 64)} |"
        )


def classic_table(job: Job) -> Iterator[str]:
    """Yield the table of 50 epochs of ImageNet: the classic component's times, and ours."""
    yield "| GPUs | classic component | this one, computed |"
    yield "|---|---|---|"
    for num_gpus, (rate, time) in CLASSIC.items():
        ours = _round(rate_of(step_of(job, V100, num_gpus)))
        yield (
            f"| {num_gpus} V100 | {time} at {rate} images/s"
            f" | {_clock(training_s(job, V100, num_gpus))} at {ours} images/s |"
        )
    for num_gpus in (8, 64):
        ours = _round(rate_of(step_of(job, A100, num_gpus)))
        duration = _clock(training_s(job, A100, num_gpus))
        yield f"| {num_gpus} A100 | | {duration} at {ours} images/s |"


TABLES = {
    "A step": step_table,
    "Replayed steps": replayed_table,
    "Input": input_table,
    "Where it saturates": limit_table,
    "Fifty epochs of ImageNet": classic_table,
}


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    job = Job()
    parser.add_argument("--batch-size", type=int, default=job.batch_size, help="images per GPU")
    parser.add_argument("--parameters", type=int, default=job.parameters, help="ResNet-50's")
    parser.add_argument(
        "--decoded-per-core", type=float, default=job.decoded_per_core, help="images/s"
    )
    chosen = parser.parse_args()
    job = Job(chosen.batch_size, chosen.parameters, chosen.decoded_per_core)
    for title, table in TABLES.items():
        print(f"{title}, {job.batch_size} images per GPU\n")
        print("\n".join(table(job)), end="\n\n")


def _round(value: float) -> str:
    """Format to three digits: nothing here is known more precisely."""
    digits = 2 - math.floor(math.log10(value))
    return f"{round(value, digits):,.0f}"


def _clock(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


if __name__ == "__main__":
    main()
