#!/usr/bin/env python3
"""Independent implementation of docs/data_order.md, standard library only.

    data_order_reference.py --check data_order.json    compares every vector of the file with this implementation
    data_order_reference.py --write data_order.json    writes the file (only when a new order version is defined)
"""

import argparse
import json
import math
import struct
import sys

U32 = 0xFFFFFFFF
U64 = 0xFFFFFFFFFFFFFFFF
GAMMA = 0x9E3779B97F4A7C15


def mix64(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & U64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & U64
    return x ^ (x >> 31)


def hash_of(*values):
    h = 0
    for value in values:
        h = mix64(((h ^ value) + GAMMA) & U64)
    return h


def hash_name(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & U64
    return mix64(h)


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & U32, (p0 >> 32) ^ c3 ^ k1, p0 & U32
        k0, k1 = (k0 + 0x9E3779B9) & U32, (k1 + 0xBB67AE85) & U32
    return c0, c1, c2, c3


def split(x):
    return x & U32, x >> 32


class CounterRng:
    def __init__(self, seed, purpose, salt):
        self.key, self.salt = split(hash_of(seed, purpose)), salt

    def bits(self, index):
        block = philox(split(index) + split(self.salt), self.key)
        return block[0] | block[1] << 32

    def uniform(self, index):
        return (self.bits(index) >> 11) * 2.0**-53

    def word(self, index):
        low, high = split(index >> 2)
        return philox((low, high | 0xC0000000) + split(self.salt), self.key)[index & 3]

    def normal(self, index):
        low, high = split(index >> 2)
        block = philox((low, high | 0x80000000) + split(self.salt), self.key)
        pair = index & 2
        return box_muller(block[pair], block[pair + 1])[index & 1]


def horner(coefficients, z):
    p = coefficients[0]
    for c in coefficients[1:]:
        p = p * z + c
    return p


LOG = [1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
       2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01]
SIN = [1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
       8.33333333332248946124e-03, -1.66666666666666324348e-01]
COS = [-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
       -1.38888888888741095749e-03, 4.16666666666666019037e-02]


def log(x):
    m, k = math.frexp(x)
    if m < struct.unpack("<d", struct.pack("<Q", 0x3FE6A09E667F3BCD))[0]:
        m, k = m * 2.0, k - 1
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = horner(LOG, z) * z
    half_square = 0.5 * f * f
    low = s * (half_square + p) + k * 1.90821492927058770002e-10
    return k * 6.93147180369123816490e-01 - ((half_square - low) - f)


def box_muller(w0, w1):
    radius = math.sqrt(-2.0 * log((w0 + 0.5) * 2.0**-32))
    shifted = (w1 + 2**29) & U32
    quadrant, rest = shifted >> 30, shifted & (2**30 - 1)
    x = (rest - 2.0**29) * (6.283185307179586476925 * 2.0**-32)
    z = x * x
    s = x + x * (z * horner(SIN, z))
    c = (1.0 - 0.5 * z) + (z * z) * horner(COS, z)
    c, s = [(c, s), (-s, c), (-c, -s), (s, -c)][quadrant]
    return radius * c, radius * s


class KeyedPermutation:
    def __init__(self, size, seed, stream, epoch):
        self.size = size
        key = hash_of(seed, stream, epoch)
        self.table = None
        if size <= 65536:
            self.table = list(range(size))
            for i in range(size - 1, 0, -1):
                block = philox((i, 0, 0, 0), split(key))
                j = (block[0] | block[1] << 32) * (i + 1) >> 64
                self.table[i], self.table[j] = self.table[j], self.table[i]
            return
        self.half_bits = ((size - 1).bit_length() + 1) // 2
        self.keys = [mix64((key + r * GAMMA) & U64) for r in range(1, 9)]

    def __call__(self, x):
        if self.table is not None:
            return self.table[x]
        mask = (1 << self.half_bits) - 1
        while True:
            left, right = x >> self.half_bits, x & mask
            for key in self.keys:
                left, right = right, left ^ (mix64(right ^ key) & mask)
            x = left << self.half_bits | right
            if x < self.size:
                return x


def word_stream(seed, purpose, salt, count):
    """The first `count` words of a stream, four to a block."""
    key, words = split(hash_of(seed, purpose)), []
    for block in range((count + 3) // 4):
        low, high = split(block)
        words += philox((low, high | 0xC0000000) + split(salt), key)
    return words[:count]


class EpochOrder:
    """Samples of one source; `window` is a number of samples."""

    def __init__(self, size, shuffle, window, seed):
        self.size, self.shuffle, self.block, self.seed = size, shuffle, max(1, window // 16), seed
        self.kept = {}

    def permutation(self, size, stream, epoch):
        key = size, stream, epoch
        if key not in self.kept:
            self.kept[key] = KeyedPermutation(size, self.seed, stream, epoch)
        return self.kept[key]

    def __call__(self, position):
        epoch, place = divmod(position, self.size)
        if self.shuffle == "none":
            return place
        if self.shuffle == "global":
            return self.permutation(self.size, 3, epoch)(place)
        pool_size = 16 * self.block
        pool, inside = divmod(place, pool_size)
        size = min(pool_size, self.size - pool * pool_size)
        place = pool * pool_size + self.permutation(size, 8, hash_of(epoch, pool))(inside)
        whole, rest = divmod(self.size, self.block)
        short = (hash_of(self.seed, 9, epoch) * (whole + 1) >> 64) * self.block
        if short <= place < short + rest:
            return whole * self.block + place - short
        if place >= short:
            place -= rest
        return self.permutation(whole, 7, epoch)(place // self.block) * self.block + place % self.block


def blend_counts(weights):
    total = 0.0
    for weight in weights:
        total += weight
    exact = [weight / total * 65536 for weight in weights]
    counts = [int(x) for x in exact]
    for d in sorted(range(len(weights)), key=lambda d: counts[d] - exact[d])[:65536 - sum(counts)]:
        counts[d] += 1
    return counts


def blend_pattern(counts, seed, block):
    """(source, rank among its turns) of each position of a block."""
    turns = []
    for d, count in enumerate(counts):
        for k, word in enumerate(word_stream(seed, 10, hash_of(block, d), count)):
            turns.append(((((k << 32) | word) << 14) // count, d, k))
    turns.sort()
    return [(d, k) for _, d, k in turns]


def fill_in_the_middle(rate, spm_rate, marks, seed, document, epoch, sample, tokens):
    kept = len(tokens) - 3
    of_document = CounterRng(seed, 12, hash_of(document, epoch))
    if kept < 1 or of_document.uniform(0) >= rate:
        return tokens
    of_piece = CounterRng(seed, 12, hash_of(document, epoch, sample))
    first, second = sorted(of_piece.bits(i) * (kept + 1) >> 64 for i in (0, 1))
    before, middle, behind = tokens[:first], tokens[first:second], tokens[second:kept]
    pre, suf, mid = ([mark] for mark in marks)
    if of_document.uniform(1) < spm_rate:
        return pre + suf + behind + mid + before + middle
    return pre + before + suf + behind + mid + middle


def pack(lengths, seq_len):
    """Samples as lists of (begin, length) in the concatenated documents."""
    pieces, begin = [], 0
    for n in lengths:
        at = 0
        while n - at > 1:
            pieces.append((min(seq_len + 1, n - at), begin + at))
            at += seq_len
        begin += n
    samples, by_room = [], {}
    for length, begin in sorted(pieces, key=lambda p: (-p[0], p[1])):
        fitting = [room for room, open_samples in by_room.items() if open_samples and room >= length]
        if fitting:
            room = min(fitting)
            sample = by_room[room].pop()
        else:
            room, sample = seq_len + 1, len(samples)
            samples.append([])
        samples[sample].append((begin, length))
        by_room.setdefault(room - length, []).append(sample)
    return samples


def order_vectors():
    window = []
    for size, samples, seed in [(1, 16, 0), (1605, 160, 3), (5000, 1, 7), (100003, 3000, 1), (10**9 + 7, 10**6, U64)]:
        order = EpochOrder(size, "window", samples, seed)
        for epoch in (0, 5):
            places = sorted({0, 1 % size, size // 3, size // 2, size - 1})
            row = {"size": size, "window": samples, "seed": hex64(seed), "epoch": epoch, "place": places,
                   "sample": [order(epoch * size + place) for place in places]}
            if size < 10000:
                row["digest"] = hex64(sum(mix64(mix64(i) ^ order(epoch * size + i)) for i in range(size)) & U64)
            window.append(row)
    blend = []
    for names, sizes, weights, shuffle, samples, seed in [
            (["web", "code", "wiki"], [1003, 257, 64], [0.7, 0.2, 0.1], "global", 0, 42),
            (["a", "b"], [70000, 10**9], [1.0, 2.0], "window", 4096, 7)]:
        counts = blend_counts(weights)
        orders = [EpochOrder(size, shuffle, samples, hash_of(seed, hash_name(name))) for name, size in zip(names, sizes)]
        positions = [3 * 65536 + i for i in (0, 1, 12345)]
        if shuffle == "global":
            positions = [0, 1, 2, 3, 4, 5, 6, 7, 1000, 65535] + positions
        patterns = {block: blend_pattern(counts, seed, block) for block in {p // 65536 for p in positions}}
        ids = []
        for position in positions:
            block, inside = divmod(position, 65536)
            source, rank = patterns[block][inside]
            local = block * counts[source] + rank
            ids.append([source, local // sizes[source], orders[source](local)])
        blend.append({"names": names, "sizes": sizes, "weights": weights, "shuffle": shuffle, "window": samples,
                      "seed": hex64(seed), "counts": counts, "position": positions, "id": ids})
    fim = []
    for rate, spm_rate, seed, document, epoch, sample, count in [
            (1.0, 0.0, 7, 0, 0, 0, 20), (1.0, 1.0, 7, 0, 0, 0, 20), (1.0, 0.5, 7, 123456789, 3, 2**33, 40), (1.0, 0.5, 7, 5, 3, 1, 4),
            (1.0, 0.5, 7, 5, 3, 1, 3), (0.5, 0.5, 1, 1, 0, 9, 12), (0.5, 0.5, 1, 2, 0, 9, 12), (0.5, 0.5, 1, 3, 0, 9, 12)]:
        out = fill_in_the_middle(rate, spm_rate, (900, 901, 902), seed, document, epoch, sample, list(range(count)))
        fim.append({"rate": rate, "spm_rate": spm_rate, "seed": hex64(seed), "document": document, "epoch": epoch, "sample": sample,
                    "tokens": out})
    packing = []
    for count, longest, seq_len, seed in [(1, 5, 8, 0), (40, 30, 8, 1), (300, 100, 64, 2), (100, 20, 64, 3)]:
        stream = CounterRng(seed, 6, 0)
        lengths = [1 + (stream.bits(i) * longest >> 64) for i in range(count)]
        packing.append({"seq_len": seq_len, "lengths": lengths, "samples": [[list(p) for p in s] for s in pack(lengths, seq_len)]})
    return {"window": window, "blend": blend, "fim": fim, "packing": packing}


def hex64(x):
    return f"{x:016x}"


def vectors():
    """Every 64-bit value as 16 hex digits, a double by its bits; the digest covers a whole table."""
    rng = []
    for seed, purpose, salt in [(0, 1, 0), (1, 1, 0), (1, 3, 0), (7, 1, hash_name("embed_tokens.weight")), (U64, 6, U64)]:
        stream = CounterRng(seed, purpose, salt)
        indices = [0, 1, 2, 3, 4, 5, 1000003, 2**32 - 1, 2**32, 2**62 + 1]
        rng.append({
            "seed": hex64(seed), "purpose": purpose, "salt": hex64(salt), "index": [hex64(i) for i in indices],
            "bits": [hex64(stream.bits(i)) for i in indices],
            "word": [f"{stream.word(i):08x}" for i in indices],
            "normal_bits": [hex64(struct.unpack("<Q", struct.pack("<d", stream.normal(i)))[0]) for i in indices]})
    permutation = []
    for size in [1, 2, 3, 10, 1000, 65535, 65536, 65537, 131072, 131073, 1000003, 2**20 + 1, 10**9, 2**40 - 1, 2**40 + 1]:
        for seed, stream, epoch in [(0, 0, 0), (1, 0, 0), (6, 3, 0), (5, 3, 1), (U64, 1, 2**32)]:
            p = KeyedPermutation(size, seed, stream, epoch)
            indices = sorted({0, 1 % size, 2 % size, size // 2, size - 1})
            row = {"size": size, "seed": hex64(seed), "stream": stream, "epoch": epoch,
                   "index": indices, "image": [p(i) for i in indices]}
            if p.table is not None:
                row["digest"] = hex64(sum(mix64(mix64(i) ^ image) for i, image in enumerate(p.table)) & U64)
            permutation.append(row)
    dropout = []
    for seed, step, sample, layer, site, rate in [(1, 1, 0, 0, 1, 0.1), (7, 1000, 123456789, 11, 2, 0.5), (7, 3, 2**33, 5, 3, 0.25)]:
        salt = hash_of(step, sample, layer, site)
        stream = CounterRng(seed, 2, salt)
        dropout.append({
            "seed": seed, "step": step, "sample": sample, "layer": layer, "site": site, "rate": rate, "salt": hex64(salt),
            "kept": "".join("1" if stream.word(i) >= round(rate * 2**32) else "0" for i in range(96))})
    names = ["", "a", "embed_tokens.weight", "layers.11.attn.q_proj.weight"]
    return {
        "order": "feistel8-v1",
        "mix64": [[hex64(x), hex64(mix64(x))] for x in (0, 1, GAMMA, U64)],
        "hash_name": [[name, hex64(hash_name(name))] for name in names],
        "rng": rng,
        "permutation": permutation,
        "dropout": dropout,
        **order_vectors(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", metavar="FILE")
    mode.add_argument("--write", metavar="FILE")
    args = parser.parse_args()
    mine = vectors()
    if args.write:
        with open(args.write, "w") as file:
            file.write("{\n")
            items = list(mine.items())
            for n, (key, value) in enumerate(items):
                rows = value if isinstance(value, list) else None
                text = json.dumps(value) if rows is None else "[\n  " + ",\n  ".join(json.dumps(r) for r in rows) + "]"
                file.write(f'"{key}": {text}{"," if n + 1 < len(items) else ""}\n')
            file.write("}\n")
        return 0
    with open(args.check) as file:
        golden = json.load(file)
    different = [key for key in mine.keys() | golden.keys() if mine.get(key) != golden.get(key)]
    if different:
        print(f"{args.check}: {', '.join(sorted(different))} differ from the reference implementation", file=sys.stderr)
        return 1
    print(f"{len(mine['rng'])} streams, {len(mine['permutation'])} permutations, {len(mine['dropout'])} masks, "
          f"{len(mine['window'])} windows, {len(mine['blend'])} blends and {len(mine['fim'])} pieces agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
