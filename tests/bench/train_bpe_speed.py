#!/usr/bin/env python3
"""train_bpe_speed.py SHARD TEXT: seconds of plimsoll-shard train-bpe beside Hugging Face's BpeTrainer on the documents of a jsonl.

Both with the pattern llama3 and one thread of counting; shows wall and CPU seconds, and checks that the merges are the same.
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers  # noqa: E402


def cpu(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shard", help="plimsoll-shard of a Release build")
    parser.add_argument("text", help="jsonl with a field text")
    parser.add_argument("--vocab", type=int, default=32768)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        start, used = time.perf_counter(), cpu(resource.RUSAGE_CHILDREN)
        subprocess.run([options.shard, "train-bpe", "--input", options.text, "--vocab", str(options.vocab), "--pattern", "llama3", "--out",
                        path, "--threads", "1"], check=True, stdout=subprocess.DEVNULL)
        print(f"plimsoll-shard: {time.perf_counter() - start:.1f} s, {cpu(resource.RUSAGE_CHILDREN) - used:.1f} s CPU")
        with open(path, encoding="utf-8") as file:
            ours = json.load(file)
    with open(options.text, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    regex = ours["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=options.vocab, show_progress=False, special_tokens=[a["content"] for a in ours["added_tokens"]],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    start, used = time.perf_counter(), cpu(resource.RUSAGE_SELF)
    tokenizer.train_from_iterator(texts, trainer)
    print(f"tokenizers: {time.perf_counter() - start:.1f} s, {cpu(resource.RUSAGE_SELF) - used:.1f} s CPU")
    theirs = json.loads(tokenizer.to_str())["model"]
    same = ours["model"]["vocab"] == theirs["vocab"] and ours["model"]["merges"] == [" ".join(merge) for merge in theirs["merges"]]
    print(f"vocabulary and merges are {'the same' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
