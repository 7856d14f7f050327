"""A race of networks in words, for the terminal, the report and the model card."""

from collections.abc import Iterator, Sequence

from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.formats.race_record import Candidate, RaceRecord
from train_pytorch_model.machine.console import logger, paragraph

HEADER = (
    "candidate",
    "accuracy",
    "95% interval",
    "loss",
    "images/s",
    "MB",
    "seconds",
    "licence",
    "",
)
UNKNOWN = "not known"


def table_rows(record: RaceRecord) -> list[tuple[str, ...]]:
    """Return a row of texts for each candidate, under `HEADER`."""
    return [_row(candidate, record.chosen) for candidate in record.candidates]


def _row(candidate: Candidate, chosen: str) -> tuple[str, ...]:
    low, high = candidate.accuracy_interval or (None, None)
    interval = "" if low is None or high is None else f"{low:.1%} to {high:.1%}"
    remark = "taken" if candidate.name == chosen else candidate.remark
    return (
        candidate.name,
        _number(candidate.accuracy, ".1%"),
        interval,
        _number(candidate.loss, ".3f"),
        _number(candidate.images_per_second, ",.1f"),
        _number(candidate.megabytes, ",.0f"),
        _number(candidate.seconds, ",.1f"),
        candidate.licence or UNKNOWN,
        remark,
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def table_lines(record: RaceRecord) -> list[str]:
    """Return the table as lines of equal columns; numbers are on the right of theirs."""
    rows = [HEADER, *table_rows(record)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
        is_number = 0 < column < len(row) - 2
        cells.append(cell.rjust(width) if is_number else cell.ljust(width))
    return "  ".join(cells).rstrip()


def sentences(record: RaceRecord) -> Iterator[str]:
    """Yield what the race says, most important first."""
    yield record.reason
    low, high = record.accuracy_interval
    yield (
        f"Its classifier of features, solved anew for each fifth of the images without that fifth,"
        f" recognizes {record.accuracy:.1%} of them, 95% interval {low:.1%} to {high:.1%}; images"
        " that look alike are in one fifth, and the choice of network is part of the measurement."
    )
    if record.images < record.all_images:
        yield (
            f"That was measured on {counted(record.images, 'image', 'images')}, a sample of"
            f" {record.all_images:,}: there was no time for all. With more"
            f" {parameter('minutes')} it is surer."
        )


def log_race(record: RaceRecord) -> None:
    """Log the table and what it says."""
    logger.info("The race, by classifiers of features:")
    for line in table_lines(record):
        logger.info(f"  {line}")
    for sentence in sentences(record):
        paragraph(sentence)
