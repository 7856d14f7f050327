"""Checkpoints: damaged ones are never loaded, and each gets its name only once it is on disk."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoints import accept, checkpoint_of, loaded_step

from train_pytorch_model.errors import CheckpointError
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.training.checkpoint_files import (
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)


def newest(folder: Path, suffix: str) -> Path:
    return max(folder.glob(f"*{suffix}"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with checkpoints of steps 1 and 2."""
    for step in (1, 2):
        save_checkpoint(tmp_path / "checkpoints", checkpoint_of(step))
    return tmp_path / "checkpoints"


def test_the_last_saved_checkpoint_is_loaded(folder: Path) -> None:
    assert loaded_step(folder) == 2


def test_a_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "nothing", accept) == (None, [])


def test_tensors_without_a_manifest_are_not_a_checkpoint(folder: Path) -> None:
    newest(folder, ".json").unlink()
    assert load_checkpoint(folder, accept)[1] == []
    assert loaded_step(folder) == 1
    newest(folder, ".json").unlink()
    assert load_checkpoint(folder, accept) == (None, [])


def test_the_newest_two_are_kept_and_leftovers_are_removed(folder: Path) -> None:
    for name in (
        "000003-00000000.safetensors",
        "000009-11111111.json.part",
        "000001-22222222.json.damaged",
    ):
        (folder / name).touch()
    save_checkpoint(folder, checkpoint_of(3))
    assert [path.name[:6] for path in sorted(folder.iterdir())] == [
        "000002",
        "000002",
        "000003",
        "000003",
    ]
    assert loaded_step(folder) == 3


def test_entries_that_cannot_be_removed_do_no_harm(folder: Path) -> None:
    (folder / "a folder").mkdir()
    save_checkpoint(folder, checkpoint_of(3))
    assert (folder / "a folder").exists()
    assert loaded_step(folder) == 3


def test_file_permissions_follow_the_umask(folder: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666 & ~mask}


# ── Damage ───────────────────────────────────────────────────────────────────────────────────────


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)


def zero_the_tail(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-20] + bytes(20))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def replace_by_the_older_one(path: Path) -> None:
    path.write_bytes(min(path.parent.glob(f"*{path.suffix}")).read_bytes())


DAMAGES = (truncate, flip_a_bit, zero_the_tail, empty, replace_by_the_older_one)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *((".json", damage) for damage in DAMAGES),
        *((".safetensors", damage) for damage in (*DAMAGES, append, Path.unlink)),
    ],
)
def test_a_damaged_checkpoint_is_reported_and_the_older_one_is_loaded(
    folder: Path, suffix: str, damage: Callable[[Path], None]
) -> None:
    manifest = newest(folder, ".json")
    damage(newest(folder, suffix))
    checkpoint, problems = load_checkpoint(folder, accept)
    assert checkpoint is not None
    assert checkpoint.values["step"] == 1
    assert len(problems) == 1
    assert problems[0].startswith(f"{manifest.name}: ")


@pytest.mark.parametrize("bit", range(8))
def test_a_checkpoint_with_a_flipped_bit_is_not_loaded(folder: Path, bit: int) -> None:
    for suffix in (".json", ".safetensors"):
        path = newest(folder, suffix)
        whole = path.read_bytes()
        for place in range(0, len(whole), 13):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            path.write_bytes(data)
            assert loaded_step(folder) == 1
            for aside in folder.glob("*.damaged"):
                aside.rename(aside.with_suffix(""))
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("damage", "suffix", "reason"),
    [
        (truncate, ".safetensors", r"000002-\w{8}.safetensors has 167 bytes of 168\."),
        (append, ".safetensors", r"000002-\w{8}.safetensors is larger than 168 bytes\."),
        (flip_a_bit, ".safetensors", r"the sha256 of 000002-\w{8}.safetensors does not match\."),
        (Path.unlink, ".safetensors", r"000002-\w{8}.safetensors is missing\."),
        (truncate, ".json", r"it is not a valid manifest\."),
        (flip_a_bit, ".json", r"its own sha256 does not match\."),
    ],
)
def test_the_reason_names_the_damage(
    folder: Path, damage: Callable[[Path], None], suffix: str, reason: str
) -> None:
    damage(newest(folder, suffix))
    _, problems = load_checkpoint(folder, accept)
    assert len(problems) == 1
    assert re.search(reason, problems[0]), problems


def test_a_damaged_checkpoint_is_set_aside_and_displaces_no_intact_one(folder: Path) -> None:
    truncate(newest(folder, ".safetensors"))
    load_checkpoint(folder, accept)
    assert load_checkpoint(folder, accept)[1] == []
    save_checkpoint(folder, checkpoint_of(3))
    truncate(newest(folder, ".safetensors"))
    assert loaded_step(folder) == 1


def test_if_all_are_damaged_the_error_names_them_and_they_stay(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        truncate(path)
    before = sorted(folder.iterdir())
    with pytest.raises(CheckpointError) as raised:
        load_checkpoint(folder, accept)
    first, second = sorted((path.name for path in folder.glob("*.json")), reverse=True)
    lines = str(raised.value).splitlines()
    assert lines[0] == f"None of the checkpoints in {folder} can be read:"
    assert lines[1].startswith(f"  {first}: ")
    assert lines[2].startswith(f"  {second}: ")
    assert lines[3:] == ["Restore them from a backup, or start over with --fresh."]
    assert sorted(folder.iterdir()) == before


def test_a_checkpoint_that_does_not_fit_the_run_is_skipped(folder: Path) -> None:
    def accept_the_first(checkpoint: Checkpoint) -> None:
        if checkpoint.values["step"] == 2:
            raise MalformedFileError("it is of another network.")

    checkpoint, problems = load_checkpoint(folder, accept_the_first)
    assert checkpoint is not None
    assert checkpoint.values["step"] == 1
    assert problems[0].endswith(".json: it is of another network.")


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        CheckpointError, match=r"^The checkpoints in .*/file cannot be read: Not a directory\.$"
    ):
        load_checkpoint(tmp_path / "file", accept)


@pytest.mark.parametrize(
    "content",
    [
        b"null",
        b"[]",
        b'{"content": 1, "sha256": ""}',
        b'{"content": {"size": "x", "sha256": ""}, "sha256": ""}',
        b'{"content": {"size": 1e999, "sha256": ""}, "sha256": ""}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_json_that_is_not_a_manifest_counts_as_damage(folder: Path, content: bytes) -> None:
    newest(folder, ".json").write_bytes(content)
    assert loaded_step(folder) == 1


def test_data_without_tensors_count_as_damage_despite_a_correct_sha256(folder: Path) -> None:
    data = newest(folder, ".safetensors")
    data.write_bytes(b"no tensors")
    content = {"size": 10, "sha256": hashlib.sha256(b"no tensors").hexdigest(), "values": {}}
    own = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    newest(folder, ".json").write_text(json.dumps({"content": content, "sha256": own}))
    checkpoint, problems = load_checkpoint(folder, accept)
    assert checkpoint is not None
    assert checkpoint.values["step"] == 1
    assert f"{data.name} holds no tensors: " in problems[0]


# ── Power loss ───────────────────────────────────────────────────────────────────────────────────


def test_files_are_synced_before_their_rename_and_tensors_before_the_manifest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process cannot observe a power loss, so the test checks the order of the calls."""
    calls: list[tuple[str, str, int]] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        number = os.fstat(descriptor).st_ino
        name = next(
            path.name for path in (folder, *folder.iterdir()) if path.stat().st_ino == number
        )
        size = 0 if name == folder.name else os.fstat(descriptor).st_size
        calls.append(("sync", name, size))
        fsync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        calls.append((f"rename to {target.name}", self.name, self.stat().st_size))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    save_checkpoint(folder, checkpoint_of(3))
    monkeypatch.undo()
    data, manifest = newest(folder, ".safetensors"), newest(folder, ".json")
    assert manifest.stem == data.stem
    assert calls == [
        *(
            (call, f"{file.name}.part", file.stat().st_size)
            for file in (data, manifest)
            for call in ("sync", f"rename to {file.name}")
        ),
        ("sync", folder.name, 0),
    ]
