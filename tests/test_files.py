"""Files that are written and read: what is replaced, what is left behind, what is no file."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim import schedule_store as store
from dlprim.distributed.metrics import read_summary
from dlprim.files import check_writable, replaced
from dlprim.train import checkpoint
from dlprim.train.npz import read_array, read_arrays

pytestmark = pytest.mark.any_level


def write(path: Path, data: bytes = b"new") -> None:
    with replaced(path) as file:
        file.write(data)


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as it:
        it.bind(str(path))


def put_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        pytest.skip("only root makes devices, where the file system has them")


def put_link(path: Path) -> None:
    put_fifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def put_folder(path: Path) -> None:
    path.mkdir()


SPECIAL: dict[str, Callable[[Path], None]] = {
    "fifo": put_fifo,
    "socket": put_socket,
    "device": put_device,
    "link": put_link,
    "folder": put_folder,
}

WRITERS: dict[str, Callable[[Path], Any]] = {
    "replaced": write,
    "check_writable": check_writable,
    "nn.save": lambda path: nn.save(nn.Linear(2, 2), path),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_regular_file_is_not_replaced(writer: str, kind: str, tmp_path: Path) -> None:
    """As /dev/null was, by a file of the model."""
    path = tmp_path / "it"
    SPECIAL[kind](path)
    before = sorted((it.name, it.lstat().st_mode) for it in tmp_path.iterdir())
    with pytest.raises(OSError, match="it cannot be written: it exists and is not a regular file"):
        WRITERS[writer](path)
    assert sorted((it.name, it.lstat().st_mode) for it in tmp_path.iterdir()) == before


def onnx_load(path: Path) -> Any:
    pytest.importorskip("onnx", reason="it reads files in its format")
    return import_module("dlprim.onnx").load(path)


READERS: dict[str, Callable[[Path], Any]] = {
    "nn.load": nn.load,
    "load": dlprim.load,
    "onnx.load": onnx_load,
    "checkpoint": checkpoint.read,
    "description": checkpoint.read_description,
    "npz": read_arrays,
    "npy": read_array,
    "summary": read_summary,
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_not_read(reader: str, kind: str, tmp_path: Path) -> None:
    """Of /dev/zero 17 GB were read, and a pipe that nobody writes to was waited for."""
    if reader == "load":
        pytest.importorskip("onnx", reason="networks need it")
    path = tmp_path / "it"
    SPECIAL[kind](path)
    with pytest.raises(
        (OSError, checkpoint.CheckpointError), match=r"regular|director|No such dev"
    ):
        READERS[reader](path)


def test_stored_schedules_are_not_read_from_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPRIM_TUNE_DIR", str(tmp_path))
    put_fifo(store.file_in(tmp_path))
    with pytest.warns(RuntimeWarning, match="are ignored: .* is no regular file"):
        assert store.load(tmp_path) == {}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o777])
def test_the_mode_of_what_is_replaced_is_kept(mode: int, tmp_path: Path) -> None:
    """And nobody else reads meanwhile what only the owner may."""
    path = tmp_path / "it"
    path.write_bytes(b"old")
    path.chmod(mode)
    with replaced(path) as file:
        (temporary,) = (it for it in tmp_path.iterdir() if it != path)
        assert stat.S_IMODE(temporary.stat().st_mode) == mode
        file.write(b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", mode)
    write(tmp_path / "other")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / it).stat().st_mode) for it in ("other", "plain")}
    assert len(modes) == 1


@pytest.mark.parametrize("writer", WRITERS)
def test_a_read_only_file_stays(writer: str, tmp_path: Path) -> None:
    """Whoever asks: a rename needs no right to what it replaces, and root has every right."""
    path = tmp_path / "it"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(OSError, match="it cannot be written: it exists and is read-only"):
        WRITERS[writer](path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["it"]


SAVING = """
import sys
import numpy as np
from dlprim import nn
model = nn.Linear(512, 512)
print("ready", flush=True)
while True:
    nn.save(model, sys.argv[1])
"""


def test_killed_writers_leave_a_whole_file_and_the_next_one_clears_up(tmp_path: Path) -> None:
    path = tmp_path / "it"
    nn.save(nn.Linear(512, 512), path)
    random = np.random.default_rng(0)
    for _ in range(4):
        writers = [
            subprocess.Popen([sys.executable, "-c", SAVING, str(path)], stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        for it in writers:
            assert it.stdout is not None
            assert it.stdout.readline() == b"ready\n"
        time.sleep(random.uniform(0, 0.02))
        for it in writers:
            it.kill()
            it.communicate()
            assert it.returncode == -signal.SIGKILL
        assert nn.load(path).weight.shape == (512, 512)  # type: ignore[union-attr]
    (tmp_path / ".dlprim-0011223344556677.tmp").write_bytes(b"half")  # that one of them is sure
    nn.save(nn.Linear(2, 2), path)
    assert os.listdir(tmp_path) == ["it"]


def test_writers_do_not_take_each_other_for_killed_ones(tmp_path: Path) -> None:
    with replaced(tmp_path / "slow") as file:
        for _ in range(20):
            write(tmp_path / "fast")
        file.write(b"whole")
    errors: list[Exception] = []

    def repeat(name: str) -> None:
        try:
            for _ in range(100):
                write(tmp_path / name, name.encode())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(it,)) for it in "abcd"]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert errors == []
    assert {it.name: it.read_bytes() for it in tmp_path.iterdir()} == {
        "slow": b"whole", "fast": b"new", **{it: it.encode() for it in "abcd"}
    }  # fmt: skip


def external_model(folder: Path) -> Path:
    """A model whose weights lie in folder/part/data."""
    onnx = pytest.importorskip("onnx", reason="it writes the model")
    (folder / "part").mkdir(parents=True)
    text = (
        '<ir_version: 9, opset_import: ["": 20]> it (float[4] x) => (float[4] y) { y = Add(x, w) }'
    )
    model = onnx.parser.parse_model(text)
    tensor = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    tensor.external_data.add(key="location", value="part/data")
    model.graph.initializer.append(tensor)
    (folder / "part" / "data").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (folder / "it.onnx").write_bytes(model.SerializeToString())
    return folder / "it.onnx"


@pytest.mark.parametrize("what", ["file", "folder", "pipe"])
def test_external_data_is_not_raced_out_of_the_folder(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is what was checked, though a link takes its place in between."""
    proto = import_module("dlprim.onnx.proto")
    path = external_model(tmp_path / "model")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "data").write_bytes(b"0123456789abcdef")
    part, away = path.parent / "part", tmp_path / "away"
    shutil.copytree(part, away)

    def race(*arguments: Any, original: Any = proto._within) -> Any:
        (part.unlink if part.is_symlink() else partial(shutil.rmtree, part))()
        shutil.copytree(away, part)  # nothing is to be seen once it is read
        found = original(*arguments)
        shutil.rmtree(part)
        if what == "folder":
            part.symlink_to(secret)
            return found
        part.mkdir()
        if what == "file":
            (part / "data").symlink_to(secret / "data")
        else:
            put_fifo(part / "data")
        return found

    loaded = onnx_load(path)(np.zeros(4, np.float32))
    np.testing.assert_array_equal(loaded, np.arange(4, dtype=np.float32))
    monkeypatch.setattr(proto, "_within", race)
    with pytest.raises(proto.ModelError, match="tensor 'w': "):
        onnx_load(path)
