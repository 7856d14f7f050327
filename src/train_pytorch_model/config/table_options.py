"""Which columns of a table say what, on the command line and in Python."""

from dataclasses import dataclass, fields

from train_pytorch_model.config.options import OptionalName


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Which columns of a table say what."""

    label_column: OptionalName = None
    """Column of the table with the categories; by default found by its name and values."""
    file_column: OptionalName = None
    """Column of the table with the file names; by default found by its name and values."""
    split_column: OptionalName = None
    """Column of the table with train, validation or test; by default found by its name."""


BY_DEFAULT = TableOptions()


def columns_of(options: TableOptions) -> TableOptions:
    """Return only the columns of options that have more."""
    named = {field.name: getattr(options, field.name) for field in fields(TableOptions)}
    return TableOptions(**named)
