"""Checkpoints that are damaged are never loaded; one has its name when it is on the disk."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoints import accept, checkpoint_of, loaded_step

from train_pytorch_model.checkpoints.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    load_checkpoint,
    save_checkpoint,
)
from train_pytorch_model.errors import CheckpointError


def newest(folder: Path, suffix: str) -> Path:
    return max(folder.glob(f"*{suffix}"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With checkpoints of steps 1 and 2."""
    for step in (1, 2):
        save_checkpoint(tmp_path / "checkpoints", checkpoint_of(step))
    return tmp_path / "checkpoints"


def test_what_is_saved_is_loaded(folder: Path) -> None:
    assert loaded_step(folder) == 2


def test_without_a_folder_there_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "nothing", accept) == (None, [])


def test_data_without_a_manifest_are_no_checkpoint(folder: Path) -> None:
    newest(folder, ".json").unlink()
    assert load_checkpoint(folder, accept)[1] == []
    assert loaded_step(folder) == 1
    newest(folder, ".json").unlink()
    assert load_checkpoint(folder, accept) == (None, [])


def test_the_newest_two_are_kept_and_what_was_left_half_done_is_not(folder: Path) -> None:
    for name in ("000003-00000000.safetensors", "000009-11111111.json.part", "000001-22222222.json.damaged"):
        (folder / name).touch()
    save_checkpoint(folder, checkpoint_of(3))
    assert [path.name[:6] for path in sorted(folder.iterdir())] == ["000002", "000002", "000003", "000003"]
    assert loaded_step(folder) == 3


def test_what_cannot_be_taken_away_is_in_nobodys_way(folder: Path) -> None:
    (folder / "a folder").mkdir()
    save_checkpoint(folder, checkpoint_of(3))
    assert (folder / "a folder").exists()
    assert loaded_step(folder) == 3


def test_a_file_may_be_read_by_everybody(folder: Path) -> None:
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


def take_that_of_the_older(path: Path) -> None:
    path.write_bytes(min(path.parent.glob(f"*{path.suffix}")).read_bytes())


DAMAGES = (truncate, flip_a_bit, zero_the_tail, empty, take_that_of_the_older)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *((".json", damage) for damage in DAMAGES),
        *((".safetensors", damage) for damage in (*DAMAGES, append, Path.unlink)),
    ],
)
def test_the_older_one_is_taken_for_a_damaged_one_and_the_reason_is_told(
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
def test_no_flipped_bit_is_loaded(folder: Path, bit: int) -> None:
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
def test_the_reason_says_what_is_wrong(
    folder: Path, damage: Callable[[Path], None], suffix: str, reason: str
) -> None:
    damage(newest(folder, suffix))
    _, problems = load_checkpoint(folder, accept)
    assert len(problems) == 1
    assert re.search(reason, problems[0]), problems


def test_a_damaged_one_is_set_aside_and_does_not_push_out_a_whole_one(folder: Path) -> None:
    truncate(newest(folder, ".safetensors"))
    load_checkpoint(folder, accept)
    assert load_checkpoint(folder, accept)[1] == []
    save_checkpoint(folder, checkpoint_of(3))
    truncate(newest(folder, ".safetensors"))
    assert loaded_step(folder) == 1


def test_where_none_is_whole_the_error_names_them_all_and_they_stay(folder: Path) -> None:
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


def test_one_that_does_not_fit_the_run_is_passed_over(folder: Path) -> None:
    def accept_the_first(checkpoint: Checkpoint) -> None:
        if checkpoint.values["step"] == 2:
            raise DamagedCheckpointError("it is of another network.")

    checkpoint, problems = load_checkpoint(folder, accept_the_first)
    assert checkpoint is not None
    assert checkpoint.values["step"] == 1
    assert problems[0].endswith(".json: it is of another network.")


def test_a_folder_that_cannot_be_listed_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
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
def test_json_that_is_no_manifest_is_damage(folder: Path, content: bytes) -> None:
    newest(folder, ".json").write_bytes(content)
    assert loaded_step(folder) == 1


def test_data_that_are_no_tensors_are_damage_even_if_their_sha256_is_right(folder: Path) -> None:
    data = newest(folder, ".safetensors")
    data.write_bytes(b"no tensors")
    content = {"size": 10, "sha256": hashlib.sha256(b"no tensors").hexdigest(), "values": {}}
    own = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    newest(folder, ".json").write_text(json.dumps({"content": content, "sha256": own}))
    checkpoint, problems = load_checkpoint(folder, accept)
    assert checkpoint is not None
    assert checkpoint.values["step"] == 1
    assert f"{data.name} holds no tensors: " in problems[0]


# ── What a power loss leaves ─────────────────────────────────────────────────────────────────────


def test_a_file_has_its_name_when_it_is_on_the_disk_and_a_manifest_when_its_tensors_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process can see a power loss: the order of the calls is all there is to see."""
    calls: list[tuple[str, str, int]] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        number = os.fstat(descriptor).st_ino
        name = next(path.name for path in (folder, *folder.iterdir()) if path.stat().st_ino == number)
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
