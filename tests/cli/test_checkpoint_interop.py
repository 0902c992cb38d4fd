"""Files of ours read by h5py and safetensors, and theirs by us."""

import json
import subprocess

import h5py
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file as save_torch

COUNTED = np.arange(15).reshape(3, 5) - 4
SHARD = "shard_00000_of_00001.h5"


@pytest.fixture
def types(run, tmp_path):
    done = run("make-checkpoint", "types", tmp_path / "types")
    assert done.rc == 0, done.stderr
    return tmp_path / "types/step_00000001"


def test_h5py_reads_values_of_every_type(types):
    with h5py.File(types / SHARD, "r") as file:
        for name in ("f32", "f64", "bf16", "f16", "i32", "i64"):
            dataset = file[f"model/{name}/0"]
            assert dataset.shape == (3, 5)
            assert dataset.attrs["dtype"].decode() == name
            assert list(dataset.attrs["global_shape"]) == [3, 5] and list(dataset.attrs["offset"]) == [0, 0]
            np.testing.assert_array_equal(dataset[...].astype(np.float64), COUNTED)
            assert dataset.chunks is None and dataset.id.get_offset() > 0


def test_h5py_reads_root_index_names_and_trainer(run, tmp_path):
    done = run("make-checkpoint", "steps", tmp_path, 3, 20)
    assert done.rc == 0, done.stderr
    step = tmp_path / "step_00000020"
    manifest = json.loads((step / "manifest.json").read_text())
    with h5py.File(step / SHARD, "r") as file:
        assert file.attrs["format"].decode() == "plimsoll-checkpoint"
        assert list(file.attrs["format_version"]) == [1, 0]
        assert file.attrs["uuid"].decode() == manifest["uuid"] and file.attrs["complete"] == 1 and file.attrs["step"] == 20
        names = [name.decode() for name in file["names"]]
        assert names == ["embed_tokens.weight", "layers.0.input_norm.weight", "scale", "nothing"]
        index = file["index"][...]
        assert len(index) == manifest["files"][0]["boxes"] == 18
        first = index[0]
        assert names[first["fqn_id"]] == "embed_tokens.weight" and list(first["shape"][:2]) == [4, 5]
        raw = (step / SHARD).read_bytes()[first["file_offset"]:][:first["nbytes"]]
        np.testing.assert_array_equal(np.frombuffer(raw, "<f4").reshape(4, 5), file["model/embed_tokens.weight/0"][...])
        assert "model/nothing/0" not in file and index[list(index["fqn_id"]).index(3)]["nbytes"] == 0
        assert file["model/scale/0"].shape == ()
        assert file["trainer"].attrs["consumed_tokens"] == 20480
        assert file["trainer"].attrs["seed"] == 2**64 - 9
        groups = file["optim/groups"][...]
        assert groups[0]["name"] == b"decay" and groups[0]["beta2"] == 0.95 and groups[0]["step"] == 20
        assert list(file["optim/group_of"]) == [0, 0, 0, 0]
    with open(step / "COMMIT", encoding="ascii") as commit:
        assert subprocess.run(["sha256sum", "-c", "-"], stdin=commit, cwd=step, check=False).returncode == 0


def test_no_object_has_more_than_eight_attributes(types):
    with h5py.File(types / SHARD, "r") as file:
        counts = [len(file.attrs)]
        file.visititems(lambda _, item: counts.append(len(item.attrs)))
        assert max(counts) <= 8


def test_h5dump_reads_every_file(types):
    done = subprocess.run(["h5dump", "-H", types / SHARD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'DATASET "index"' in done.stdout


def test_safetensors_package_reads_our_file(run, tmp_path):
    path = tmp_path / "ours.safetensors"
    assert run("make-checkpoint", "safetensors", path).rc == 0
    tensors = load_torch(path)
    for name, dtype in (("f32", torch.float32), ("f64", torch.float64), ("bf16", torch.bfloat16), ("f16", torch.float16),
                        ("i32", torch.int32), ("i64", torch.int64)):
        assert tensors[name].dtype == dtype
        np.testing.assert_array_equal(tensors[name].to(torch.float64).numpy(), COUNTED)
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}


def test_we_read_files_of_the_safetensors_package(run, tmp_path):
    path = tmp_path / "theirs.safetensors"
    generator = np.random.default_rng(1)
    values = generator.standard_normal((7, 3)).astype(np.float32)
    save_numpy({"w": values, "empty": np.zeros((0, 4), np.float64), "scalar": np.array(2.5)}, path, {"format": "np"})
    assert run("make-checkpoint", "read", path, "w").stdout == f"F32 [7,3] {values.tobytes().hex()}\n"
    assert run("make-checkpoint", "read", path, "empty").stdout == "F64 [0,4] \n"
    assert run("make-checkpoint", "read", path, "scalar").stdout == f"F64 [] {np.float64(2.5).tobytes().hex()}\n"
    save_torch({"b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)}, path)
    assert run("make-checkpoint", "read", path, "b").stdout == "BF16 [2] c03f00c0\n"


# A second reader, written from docs/checkpoint_format.md alone: no line of it comes from the C++ one.

CRC_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    CRC_TABLE.append(_byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def mix64(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def digest(path, values):
    """Of a whole tensor of f32 in C order."""
    hashed = 0xCBF29CE484222325
    for byte in path.encode():
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        salt = mix64(np.array([hashed], np.uint64))
        index = np.arange(values.size, dtype=np.uint64)
        bits = values.reshape(-1).view(np.uint32).astype(np.uint64)
        return int(mix64(mix64(index ^ salt) ^ bits).sum(dtype=np.uint64))


def test_a_reader_written_from_the_document(run, tmp_path):
    assert crc32c(b"123456789") == 0xE3069283
    done = run("make-checkpoint", "steps", tmp_path, 3, 20)
    assert done.rc == 0, done.stderr
    step = tmp_path / "step_00000020"
    manifest = json.loads((step / "manifest.json").read_text())
    tensors = {(row["state"], row["name"]): np.full(row["shape"], np.nan, np.float32) for row in manifest["tensors"]}
    states = ["model", "optim/master", "optim/exp_avg", "optim/exp_avg_sq"]
    for entry in manifest["files"]:
        raw = (step / entry["name"]).read_bytes()
        assert len(raw) == entry["bytes"]
        with h5py.File(step / entry["name"]) as file:
            names = [name.decode() for name in file["names"]]
            index, blocks = file["index"][...], file["crc"][...]
            assert index.dtype.itemsize == 112
            assert f"{crc32c(index.tobytes()):08x}" == entry["index_crc32c"]
            assert f"{crc32c(blocks.tobytes()):08x}" == entry["blocks_crc32c"]
        outside = bytearray()
        at = 0
        for row in sorted(index, key=lambda row: row["file_offset"]):
            if not row["nbytes"]:
                continue
            begin, end = int(row["file_offset"]), int(row["file_offset"] + row["nbytes"])
            outside += raw[at:begin]
            at = end
            assert crc32c(raw[begin:end]) == row["crc32c"] == blocks[row["first_block"]]
            ndim = row["ndim"]
            place = tuple(slice(int(o), int(o + s)) for o, s in zip(row["offset"][:ndim], row["shape"][:ndim]))
            values = np.frombuffer(raw[begin:end], "<f4").reshape(row["shape"][:ndim].astype(int))
            tensors[(states[row["state"]], names[row["fqn_id"]])][place] = values
        outside += raw[at:]
        assert f"{crc32c(outside):08x}" == entry["skeleton_crc32c"]
    for row in manifest["tensors"]:
        values = tensors[(row["state"], row["name"])]
        assert not np.isnan(values).any()
        assert f"{digest(row['state'] + '/' + row['name'], values):016x}" == row["digest"]
