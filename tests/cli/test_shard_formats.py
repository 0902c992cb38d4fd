"""Token shards to the formats of other tools and back. Each format is read here by a reader of its own, written from the
layout in docs/token_formats.md."""

import json
import os
import struct

import h5py
import numpy as np
import pytest


def read_shards(directory, of="train"):
    """Documents (ids, mask) of a directory of token shards."""
    manifest = json.loads((directory / "manifest.json").read_text())
    documents = []
    for row in manifest["shards"]:
        if row["set"] != of:
            continue
        with h5py.File(directory / row["path"]) as shard:
            tokens, ends = shard["tokens"][:], shard["documents/ends"][:]
            mask = shard["loss_mask"][:] if "loss_mask" in shard else np.ones(len(tokens), "u1")
        for begin, end in zip([0, *ends[:-1]], ends):
            documents.append((tokens[begin:end].tolist(), mask[begin:end].tolist()))
    return documents


def read_megatron(prefix):
    index, tokens = (prefix.parent / (prefix.name + ".idx")).read_bytes(), prefix.parent / (prefix.name + ".bin")
    assert index[:9] == b"MMIDIDX\0\0" and struct.unpack_from("<Q", index, 9) == (1,)
    dtype = {8: "<u2", 4: "<i4"}[index[17]]
    sequences, boundaries = struct.unpack_from("<QQ", index, 18)
    assert len(index) == 34 + 12 * sequences + 8 * boundaries
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    bounds = np.frombuffer(index, "<i8", boundaries, 34 + 12 * sequences)
    data = np.fromfile(tokens, dtype)
    width = np.dtype(dtype).itemsize
    texts = [data[p // width : p // width + n].tolist() for p, n in zip(pointers, lengths)]
    return dtype, [sum(texts[a:b], []) for a, b in zip(bounds, bounds[1:])]


def read_llmc(paths, eod):
    ids = []
    for path in paths:
        raw = path.read_bytes()
        magic, version, count = struct.unpack_from("<3i", raw)
        assert (magic, version) in ((20240520, 1), (20240801, 7))
        dtype = "<u2" if version == 1 else "<u4"
        assert len(raw) == 1024 + count * np.dtype(dtype).itemsize and not any(raw[12:1024])
        ids += np.frombuffer(raw, dtype, count, 1024).tolist()
    starts = [i for i, token in enumerate(ids) if token == eod]
    assert starts[0] == 0
    return [[*ids[a + 1 : b], eod] for a, b in zip(starts, [*starts[1:], len(ids)])]


def read_ds(path, width):
    tokens = np.fromfile(path, f"<u{width}")
    ends = np.fromfile(f"{path}.index", "<u8")
    loss = np.fromfile(f"{path}.loss", "?") if os.path.exists(f"{path}.loss") else np.ones(len(tokens), "?")
    assert ends[-1] == len(tokens) == len(loss)
    return [(tokens[a:b].tolist(), loss[a:b].astype(int).tolist()) for a, b in zip([0, *ends[:-1]], ends)]


def read_mds(directory):
    documents = []
    for shard in json.loads((directory / "index.json").read_text())["shards"]:
        raw = (directory / shard["raw_data"]["basename"]).read_bytes()
        assert len(raw) == shard["raw_data"]["bytes"]
        (count,) = struct.unpack_from("<I", raw)
        offsets = struct.unpack_from(f"<{count + 1}I", raw, 4)
        config = raw[8 + 4 * count : offsets[0]].decode()
        assert count == shard["samples"] and config == json.dumps(json.loads(config), sort_keys=True)
        for begin, end in zip(offsets, offsets[1:]):
            names = shard["column_names"]
            sizes = struct.unpack_from(f"<{len(names)}I", raw, begin)
            at, sample = begin + 4 * len(names), {}
            for name, encoding, size in zip(names, shard["column_encodings"], sizes):
                value, at = raw[at : at + size], at + size
                shape_width = 1 << (value[0] & 3)
                assert value[0] >> 2 == 1
                dim = int.from_bytes(value[1 : 1 + shape_width], "little")
                sample[name] = np.frombuffer(value[1 + shape_width :], encoding.split(":")[1])
                assert len(sample[name]) == dim
            assert at == end
            documents.append((sample["tokens"].tolist(), sample.get("loss_mask", np.ones(dim, "u1")).tolist()))
    return documents


@pytest.fixture
def words(run, tmp_path):
    texts = [f"document {i} of many" + "é" * (i * 7 % 40) for i in range(120)]
    texts[60] = "a long one " * 40
    (tmp_path / "words.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    done = run("shard", "--input", "words.jsonl", "--out", "words", "--shard-tokens", 1000, "--validation", "10%")
    assert done.rc == 0, done.stderr
    return tmp_path / "words"


def masked_ds(tmp_path, documents, vocab):
    """Documents (ids, mask) as files of datatrove's, the way to shards with a mask and any vocabulary."""
    dtype = "<u2" if vocab <= 65536 else "<u4"
    np.array(sum((ids for ids, _ in documents), []), dtype).tofile(tmp_path / "in.ds")
    np.cumsum([len(ids) for ids, _ in documents]).astype("<u8").tofile(tmp_path / "in.ds.index")
    np.array(sum((mask for _, mask in documents), []), "u1").tofile(tmp_path / "in.ds.loss")
    return tmp_path / "in.ds"


def path_of(name, prefix):
    return {"megatron": f"{prefix}.idx", "llmc": f"{prefix}_000000.bin", "ds": f"{prefix}.ds", "mds": prefix}[name]


@pytest.mark.parametrize("name", ["megatron", "llmc", "ds", "mds"])
def test_there_and_back_gives_the_same_bytes(run, tmp_path, words, name):
    done = run("shard", "export", "words", "--to", name, "--out", "o/words")
    assert done.rc == 0, done.stderr
    train, held_out = read_shards(words), read_shards(words, "validation")
    assert done.stdout.splitlines() == [
        f"train      o/words   {len(train)} documents, {sum(len(ids) for ids, _ in train):,} tokens",
        f"validation o/words_validation   {len(held_out)} documents, {sum(len(ids) for ids, _ in held_out):,} tokens"]
    for of, prefix in (("train", "o/words"), ("validation", "o/words_validation")):
        back = f"back_{of}"
        done = run("shard", "import", path_of(name, prefix), "--from", name, "--tokenizer", "bytes", "--out", back,
                   "--shard-tokens", 1000)
        assert done.rc == 0, done.stderr
        folder = words if of == "train" else words / "validation"
        shards = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".h5")
        assert shards == sorted(entry.name for entry in (tmp_path / back).iterdir() if entry.suffix == ".h5")
        for shard in shards:
            assert (folder / shard).read_bytes() == (tmp_path / back / shard).read_bytes()
        assert run("shard", "verify", back).rc == 0
    assert run("shard", "verify", path_of(name, "o/words")).rc == 0


def test_other_readers_find_the_same_documents(run, tmp_path, words):
    train = read_shards(words)
    ids = [document for document, _ in train]
    assert run("shard", "export", "words", "--to", "megatron", "--out", "m").rc == 0
    assert read_megatron(tmp_path / "m") == ("<u2", ids)
    assert run("shard", "export", "words", "--to", "llmc", "--out", "l", "--file-tokens", 700).rc == 0
    files = sorted(tmp_path.glob("l_0*.bin"))
    assert len(files) == -(-sum(map(len, ids)) // 700)
    assert read_llmc(files, 256) == ids
    assert run("shard", "export", "words", "--to", "ds", "--out", "d").rc == 0
    assert read_ds(tmp_path / "d.ds", 2) == train
    count = sum(map(len, ids))
    assert (tmp_path / "d.ds.metadata").read_text() == f"bytes|2\n{count}\n{count / 1000:.2f} kT"
    assert run("shard", "export", "words", "--to", "mds", "--out", "mds", "--size-limit", "2kB").rc == 0
    assert read_mds(tmp_path / "mds") == train
    assert len(list((tmp_path / "mds").glob("*.mds"))) > 3


@pytest.mark.parametrize("name", ["megatron", "llmc", "ds", "mds"])
def test_several_files_follow_each_other(run, tmp_path, name):
    """Megatron-LM 81, bigscience 68: a merge lost documents or their borders."""
    for part in "ab":
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps({"text": f"{part} {i}"}) + "\n" for i in range(30)))
        assert run("shard", "--input", f"{part}.jsonl", "--out", part, "--shard-tokens", 100).rc == 0
        assert run("shard", "export", part, "--to", name, "--out", f"x{part}").rc == 0
    done = run("shard", "import", path_of(name, "xa"), path_of(name, "xb"), "--from", name, "--tokenizer", "bytes", "--out", "both",
               "--shard-tokens", 100)
    assert done.rc == 0, done.stderr
    assert run("shard", "merge", "a", "b", "--out", "merged").rc == 0
    assert read_shards(tmp_path / "both") == read_shards(tmp_path / "a") + read_shards(tmp_path / "b")
    for shard in (tmp_path / "merged").glob("*.h5"):
        assert shard.read_bytes() == (tmp_path / "both" / shard.name).read_bytes()


def test_a_wide_vocabulary_and_a_loss_mask(run, tmp_path):
    documents = [([70000, 5, 6, 9], [0, 0, 1, 1]), ([1, 9], [1, 1]), ([8, 65535, 65536, 9], [0, 1, 0, 1])]
    source = masked_ds(tmp_path, documents, 70001)
    done = run("shard", "import", source, "--from", "ds", "--vocab", 70001, "--eod", 9, "--out", "x")
    assert done.rc == 0, done.stderr
    assert read_shards(tmp_path / "x") == documents
    inspected = json.loads(run("shard", "inspect", "x/shard_00000.h5", "--json").stdout)
    assert (inspected["tokenizer"], inspected["vocab"], inspected["dtype"]) == ("unknown", 70001, "u32")
    assert (inspected["loss_mask"], inspected["masked_tokens"]) == (True, 4)
    assert " n/a bytes/token " in run("shard", "inspect", "x/shard_00000.h5").stdout, "without a tokenizer its text is not known"
    for name in ("ds", "mds"):
        assert run("shard", "export", "x", "--to", name, "--out", name).rc == 0
    assert read_ds(tmp_path / "ds.ds", 4) == documents == read_mds(tmp_path / "mds")
    assert (tmp_path / "ds.ds.loss").read_bytes() == (tmp_path / "in.ds.loss").read_bytes()
    for name in ("megatron", "llmc"):
        done = run("shard", "export", "x", "--to", name, "--out", name)
        assert done.rc == 2 and done.message == (
            f"plimsoll-shard: 'x' has a loss mask, for which {name} has no place. choose --to ds or mds, or "
            "--drop-loss-mask to lose it")
        assert run("shard", "export", "x", "--to", name, "--out", name, "--drop-loss-mask").rc == 0
    assert read_megatron(tmp_path / "megatron") == ("<i4", [ids for ids, _ in documents])
    assert read_llmc([tmp_path / "llmc_000000.bin"], 9) == [ids for ids, _ in documents]


def test_documents_that_cannot_be_learned_from_are_counted(run, tmp_path):
    source = masked_ds(tmp_path, [([1, 9], [1, 1]), ([9], [1]), ([2, 9], [0, 0]), ([3, 4], [1, 0])], 10)
    done = run("shard", "import", source, "--from", "ds", "--vocab", 10, "--eod", 9, "--out", "x", "--append-eod")
    assert done.stdout.splitlines()[0] == (
        "documents  2   empty 1   without end 1 (appended)   nothing to learn 1")
    assert read_shards(tmp_path / "x") == [([1, 9], [1, 1]), ([3, 4, 9], [1, 0, 1])]


def test_inspect_says_what_a_path_is(run, tmp_path, words):
    for name in ("megatron", "llmc", "ds", "mds"):
        assert run("shard", "export", "words", "--to", name, "--out", name).rc == 0
    count = f"{sum(len(ids) for ids, _ in read_shards(words)):,}"
    documents = len(read_shards(words))
    size = {name: sum(path.stat().st_size for path in tmp_path.glob(pattern)) / 1000 for name, pattern in
            (("megatron", "megatron.*"), ("llmc", "llmc_0*.bin"), ("ds", "ds.ds*"), ("mds", "mds/*.mds"))}
    assert run("shard", "inspect", "megatron.idx").stdout == (
        f"megatron.idx   Megatron's .bin and .idx   1 pair, {size['megatron']:.1f} kB\n"
        f"tokens     {count}   u16\ndocuments  {documents}\n")
    assert run("shard", "inspect", "megatron").rc == 0
    assert run("shard", "inspect", "llmc_000000.bin").stdout == (
        f"llmc_000000.bin   llm.c's .bin   1 file, {size['llmc']:.1f} kB\n"
        f"tokens     {count}   u16\ndocuments  the format does not tell\n")
    assert run("shard", "inspect", "ds.ds").stdout == (
        f"ds.ds   datatrove's .ds   1 file, {size['ds']:.1f} kB\n"
        f"tokens     {count}   u16\ndocuments  {documents}\ntokenizer  bytes\n")
    assert run("shard", "inspect", "mds").stdout == (
        f"mds   MosaicML's MDS   1 shard, {size['mds']:.1f} kB\n"
        f"tokens     not in the index, verify counts them   ndarray:uint16\ndocuments  {documents}\n")
    found = json.loads(run("shard", "inspect", "ds.ds", "--json").stdout)
    assert (found["format"], found["documents"], found["loss_mask"]) == ("ds", documents, False)
    done = run("shard", "verify", "megatron.idx", "mds", "ds.ds", "llmc_000000.bin", "words")
    assert done.rc == 0 and done.stdout.splitlines()[0] == (
        f"verify     ok: 4 files of other formats, {4 * int(count.replace(',', '')):,} tokens; they hold no checksums")


def test_verify_names_the_first_fault(run, tmp_path, words):
    assert run("shard", "export", "words", "--to", "megatron", "--out", "m").rc == 0
    index = bytearray((tmp_path / "m.idx").read_bytes())
    struct.pack_into("<i", index, 34 + 4, 1)
    (tmp_path / "m.idx").write_bytes(index)
    done = run("shard", "verify", "m.idx")
    first, _ = read_shards(words)[0]
    assert done.rc == 2 and done.message == (
        f"plimsoll-shard: m.idx: sequence 2 starts at byte {2 * (len(first) + len(read_shards(words)[1][0]))}, the "
        f"lengths before it add up to {2 * (len(first) + 1)}")


@pytest.mark.parametrize("args, message", [
    (["export", "words", "--to", "tar", "--out", "x"], "--to: 'tar' is not one of megatron llmc ds mds. nearest: ds"),
    (["export", "words", "--to", "ds"], "--out is missing (prefix of the files)"),
    (["export", "words", "--to", "ds", "--out", "taken"], "'taken.ds' exists. choose another --out or remove it"),
    (["export", "words", "--to", "mds", "--out", "words"], "'words' exists. choose another --out or remove it"),
    (["import", "words.jsonl", "--from", "llmc", "--out", "x"],
     "the files do not say which tokenizer they are of. give --tokenizer, or --vocab and --eod"),
    (["import", "words.jsonl", "--from", "llmc", "--vocab", "5", "--eod", "5", "--out", "x"],
     "--eod 5 is not below the vocabulary of 5"),
    (["import", "words.jsonl", "--from", "llmc", "--vocab", "5", "--tokenizer", "bytes", "--out", "x"],
     "--vocab 5 is less than the 257 ids of tokenizer 'bytes'"),
    (["import", "in.ds", "--from", "ds", "--vocab", "5", "--eod", "4", "--out", "x"],
     "token id 9 at position 1 of document 0 is not below the vocabulary of 5"),
    (["import", "words", "--from", "ds", "--vocab", "5", "--eod", "4", "--out", "x"], "no file in 'words' ends in .ds"),
    (["import", "none", "--from", "megatron", "--vocab", "5", "--eod", "4", "--out", "x"],
     "cannot open 'none.idx' (no such file or directory)"),
])
def test_what_is_refused(run, tmp_path, words, args, message):
    (tmp_path / "taken.ds").write_text("")
    masked_ds(tmp_path, [([1, 9], [1, 1])], 10)
    before = sorted(os.listdir(tmp_path))
    done = run("shard", *args)
    assert done.rc in (1, 2) and done.message.replace("plimsoll-shard: ", "", 1) == message
    assert sorted(os.listdir(tmp_path)) == before


def test_a_full_disk_leaves_nothing(run, tmp_path, words):
    for name in ("megatron", "llmc", "ds", "mds"):
        done = run("shard", "export", "words", "--to", name, "--out", "o/x",
                   env={"PLIMSOLL_FAULT_ENOSPC_AFTER": 3000})
        assert done.rc == 1 and "no space left on device" in done.message
        assert os.listdir(tmp_path / "o") == []
