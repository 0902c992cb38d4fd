"""Start-up of plimsoll-train on 1,000 shards of 10^6 documents each: seconds of --dry-run, by the clock and of the processor, best of
some runs, above those with one shard.

    PLIMSOLL_BIN=build/bin python3 tests/bench/many_shards.py [SHARDS [RUNS]]

One sparse shard is made (10^9 tokens) and linked under many names, with a manifest.json and without. Needs h5py.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy

DOCUMENTS, TOKENS_EACH, BLOCK = 10**6, 1000, 65536
MODEL = {"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}
RUN = """[run]
name = many
dir = {root}/run
threads = 1
[model]
name = {root}/model.json
[data]
seq-len = 32
shards = {root}/{shards}
[train]
steps = 10
lr = 1e-3
"""


def crc32c(data):
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def make_dataset(file, path, dtype, count):
    """Contiguous, without a byte written."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    file.require_group(os.path.dirname(path))
    space = h5py.h5s.create_simple((count,))
    h5py.h5d.create(file.id, path.encode(), h5py.h5t.py_create(numpy.dtype(dtype)), space, plist)
    return file[path]


def make_shard(path):
    tokens = DOCUMENTS * TOKENS_EACH
    with h5py.File(path, "w") as file:
        for key, value in [("format", "plimsoll-token-shard"), ("required_features", ""), ("tokenizer", "bytes"),
                           ("tokenizer_sha256", "f00d")]:
            file.attrs.create(key, value, dtype=h5py.string_dtype("utf-8", max(1, len(value))))
        file.attrs["format_version"] = numpy.array([1, 0], "<u8")
        file.attrs["vocab"] = numpy.int64(257)
        file.attrs["text_bytes"] = numpy.int64(0)
        file.attrs["complete"] = numpy.uint8(1)
        ends = numpy.arange(1, DOCUMENTS + 1, dtype="<u8") * TOKENS_EACH
        for name, dtype, count in [("/tokens", "<u2", tokens), ("/documents/ends", "<u8", DOCUMENTS),
                                   ("/documents/text_bytes", "<u8", DOCUMENTS)]:
            data = make_dataset(file, name, dtype, count)
            data.attrs["crc32c"] = numpy.uint64(0)
            blocks = -(-count * numpy.dtype(dtype).itemsize // BLOCK)
            table = make_dataset(file, "/crc/" + name.strip("/").replace("documents/", "document_"), "<u4", blocks)
            crcs = numpy.zeros(blocks, "<u4")
            if name == "/documents/ends":
                data[...] = ends
                crcs[-1] = crc32c(ends.tobytes()[(blocks - 1) * BLOCK:])
            table[...] = crcs
        file["/crc"].attrs["block_bytes"] = numpy.int64(BLOCK)


def manifest(root, names):
    size = (root / names[0]).stat().st_size
    rows = [{"path": name, "set": "train", "bytes": size, "documents": DOCUMENTS, "tokens": DOCUMENTS * TOKENS_EACH,
             "text_bytes": 0, "tokens_crc32c": "00000000"} for name in names]
    return json.dumps({"format": "plimsoll-token-shards", "format_version": [1, 0], "required_features": [],
                       "tokenizer": {"name": "bytes", "vocab": 257, "eod": 256, "sha256": "f00d"}, "dtype": "u16",
                       "options": {}, "options_sha256": "", "input": {}, "shards": rows})


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of(root, shards, runs):
    """Best clock time, best processor time."""
    (root / "run.ini").write_text(RUN.format(root=root, shards=shards))
    command = [os.path.join(os.environ["PLIMSOLL_BIN"], "plimsoll-train"), "--config", str(root / "run.ini"), "--dry-run"]
    clock = processor = float("inf")
    for _ in range(runs):
        started, used = time.perf_counter(), processor_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        clock = min(clock, time.perf_counter() - started)
        processor = min(processor, processor_seconds() - used)
        assert done.returncode == 0, done.stderr
    return clock, processor


def main():
    num = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        root = Path(folder)
        (root / "model.json").write_text(json.dumps(MODEL))
        make_shard(root / "one.h5")
        for kind in ("listed", "bare"):
            (root / kind).mkdir()
            for i in range(num):
                os.link(root / "one.h5", root / kind / f"shard_{i:05d}.h5")
        (root / "listed" / "manifest.json").write_text(manifest(root / "listed", [f"shard_{i:05d}.h5" for i in range(num)]))
        base = seconds_of(root, "one.h5", runs)
        print(f"one shard                       {base[0]:6.3f} s, processor {base[1]:6.3f} s")
        for kind, text in (("listed", "with manifest.json"), ("bare", "headers alone")):
            seconds = seconds_of(root, f"{kind}/*.h5", runs)
            print(f"{num} shards, {text:<18} {seconds[0]:6.3f} s, processor {seconds[1]:6.3f} s; "
                  f"{seconds[0] - base[0]:6.3f} and {seconds[1] - base[1]:6.3f} s more", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
