#!/usr/bin/env python3
"""sentencepiece_speed.py PROBE TEXT MODEL ...: MB per second of CPU time of one thread beside the sentencepiece wheel, documents of TEXT.jsonl in turns.

PROBE is plimsoll-text-probe of a Release build. The text is read until --megabytes; a round times our first pass (empty caches),
our second one and the wheel's; the best of --rounds is shown, and that the ids are as many.
"""

import argparse
import json
import struct
import subprocess
import time

import sentencepiece


def documents(path, limit):
    texts, size = [], 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            texts.append(json.loads(line)["text"])
            size += len(texts[-1].encode())
            if size >= limit:
                break
    return texts, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe")
    parser.add_argument("text", help="jsonl with a field text")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts, size = documents(options.text, options.megabytes * 1e6)
    request = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    for model in options.models:
        wheel = sentencepiece.SentencePieceProcessor(model_file=model)
        best = [1e9, 1e9, 1e9]
        for _ in range(options.rounds):
            done = subprocess.run([options.probe, "time", model, "2"], input=request, capture_output=True, check=True)
            passes = [line.split() for line in done.stdout.decode().splitlines()]
            start = time.process_time()
            num = sum(len(wheel.encode(text)) for text in texts)
            seconds = [float(passes[0][0]), float(passes[1][0]), time.process_time() - start]
            best = [min(pair) for pair in zip(best, seconds)]
            assert num == int(passes[0][1]), f"{model}: {passes[0][1]} ids, the wheel has {num}"
        print(f"{model}: first pass {size / best[0] / 1e6:.1f}, second {size / best[1] / 1e6:.1f}, wheel "
              f"{size / best[2] / 1e6:.1f} MB/s, cache hits {float(passes[0][2]):.3f}")


if __name__ == "__main__":
    main()
