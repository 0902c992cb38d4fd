#!/usr/bin/env python3
"""Tokenizers side by side on one pinned core: this project's encoder, fastokens, gigatoken and tiktoken, in turns in one run.

    tokenize_bench.py --bench build/bin/tokenize_bench --ranks cl100k_base.tiktoken --corpus english=english.jsonl [--corpus ...]
                      [--rounds 5] [--bytes 16000000] [--skip tiktoken,...]

A corpus is jsonl with "text". Each turn is a fresh process: the first pass over text that it never saw, then further passes. The table has
the best of all rounds, in MB/s of processor time and of wall time (which differ on a busy machine); all must give as many ids.
"""

import argparse
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
          r"\s+(?!\S)|\s")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def read_ranks(path):
    return {base64.b64decode(t): int(r) for t, r in (line.split() for line in Path(path).read_text().splitlines() if line)}


def byte_letters():
    own = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    letters = {b: chr(b) for b in own}
    letters.update({b: chr(0x100 + i) for i, b in enumerate(b for b in range(256) if b not in own)})
    return letters


def write_tokenizer_json(ranks, path):
    """The same vocabulary for libraries that read tokenizer.json: every cut of a token into two tokens is a merge."""
    letters = byte_letters()
    name = {token: "".join(letters[b] for b in token) for token in ranks}
    merges = []
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [[name[a], name[b]] for a, b in sorted(cuts, key=lambda c: (ranks[c[0]], ranks[c[1]]))]
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    special = {"id": len(ranks) + 1, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": True, "vocab": {name[t]: r for t, r in ranks.items()},
             "merges": merges}
    path.write_text(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
                                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "post_processor": None,
                                "decoder": {"type": "ByteLevel"}, "model": model}))


def read_documents(path):
    data, at, documents = Path(path).read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        documents.append(data[at + 4:at + 4 + size])
        at += 4 + size
    return documents


def encoder_of(library, ranks, tokenizer_json):
    """A function from all documents to the number of ids."""
    if library == "tiktoken":
        import tiktoken

        encoding = tiktoken.Encoding("cl100k", pat_str=CL100K, mergeable_ranks=read_ranks(ranks), special_tokens={})
        return lambda texts: sum(len(encoding.encode_ordinary(t)) for t in texts), str
    if library == "fastokens":
        import fastokens

        tokenizer = fastokens.Tokenizer.from_file(str(tokenizer_json))
        return lambda texts: sum(len(tokenizer.encode(t, False)) for t in texts), str
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_tiktoken(ranks)

    def run(texts):
        ids = tokenizer.encode_batch(texts, parallel=False)
        return sum(map(len, ids))

    return run, bytes


def run_library(library, ranks, tokenizer_json, documents, repeats):
    """What a turn of another library prints: as tokenize_bench does."""
    encode, kind = encoder_of(library, ranks, tokenizer_json)
    texts = read_documents(documents)
    size = sum(map(len, texts))
    texts = [t.decode() for t in texts] if kind is str else texts
    passes = []
    for _ in range(repeats + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        num = encode(texts)
        passes.append((time.perf_counter() - wall, time.process_time() - cpu))
    print(json.dumps({"bytes": size, "ids": num, "first_wall": passes[0][0], "first_cpu": passes[0][1],
                      "best_wall": min(p[0] for p in passes), "best_cpu": min(p[1] for p in passes)}))


def pin():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench")
    parser.add_argument("--ranks", required=True)
    parser.add_argument("--corpus", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=16_000_000)
    parser.add_argument("--skip", default="")
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        library, tokenizer_json, documents = options.turn
        run_library(library, options.ranks, tokenizer_json, documents, options.repeats)
        return
    libraries = [name for name in ("plimsoll", "fastokens", "gigatoken", "tiktoken") if name not in options.skip.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_json = Path(folder) / "tokenizer.json"
        write_tokenizer_json(read_ranks(options.ranks), tokenizer_json)
        print(f"{'corpus':9} {'library':10} {'first cpu':>10} {'best cpu':>9} {'first wall':>11} {'best wall':>10}  MB/s, best of {options.rounds}")
        for corpus in options.corpus:
            name, _, path = corpus.partition("=")
            documents = Path(folder) / "documents"
            write_documents(path, documents, options.bytes)
            show(name, libraries, run_rounds(options, libraries, tokenizer_json, documents))


def write_documents(path, target, limit):
    size = 0
    with open(path, encoding="utf-8") as lines, open(target, "wb") as out:
        for line in lines:
            text = json.loads(line)["text"].encode()
            if size + len(text) > limit:
                break
            out.write(struct.pack("<I", len(text)) + text)
            size += len(text)


def run_rounds(options, libraries, tokenizer_json, documents):
    results = {name: [] for name in libraries}
    for _ in range(options.rounds):
        for library in libraries:
            command = [sys.executable, __file__, "--ranks", options.ranks, "--repeats", str(0 if library == "tiktoken" else options.repeats),
                       "--turn", library, str(tokenizer_json), str(documents)]
            if library == "plimsoll":
                command = [options.bench, options.ranks, str(documents), str(options.repeats)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=pin)
            if done.returncode != 0:
                sys.exit(f"{library}: {done.stderr[-500:]}")
            results[library].append(json.loads(done.stdout))
    return results


def show(name, libraries, results):
    best = {}
    for library in libraries:
        rows = results[library]
        best[library] = [rows[0]["bytes"] / 1e6 / min(row[key] for row in rows)
                         for key in ("first_cpu", "best_cpu", "first_wall", "best_wall")]
        print(f"{name:9} {library:10} " + " ".join(f"{value:10.1f}" for value in best[library]) + f"   {rows[0]['ids']} ids")
    others = [best[library] for library in libraries if library in ("fastokens", "gigatoken")]
    if others and "plimsoll" in best:
        ratios = [mine / max(column) for mine, column in zip(best["plimsoll"], zip(*others))]
        print(f"{name:9} {'ratio':10} " + " ".join(f"{value:10.2f}" for value in ratios) + "   to the better of fastokens and gigatoken")


main()
