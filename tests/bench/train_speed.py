#!/usr/bin/env python3
"""plimsoll-train beside PyTorch: GPT-2 124M shape, fp32, CPU. Prints rates, memory, start-up and ratios.

    train_speed.py [BIN_DIR] [--threads 2] [--seq-len 256] [--batch 4] [--steps 6] [--rounds 3]      one process, eager
    train_speed.py [BIN_DIR] --ranks 2 --threads 1 [--zero 1]                     dp over MPI, and DDP over Gloo
    train_speed.py [BIN_DIR] --ranks 2 --threads 1 --zero 3 --peer fsdp           and FSDP2 over Gloo, a unit for each block

Both reduce buckets of 25 MiB unless --bucket says otherwise (FSDP2 knows its units only).

--batch is of all ranks together.

Runs are interleaved, each in a fresh process; the best of all rounds counts for speed (the machine is noisy), the median for
memory and start-up. Needs torch in this Python; nothing of it is needed by Plimsoll at run time.
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VOCAB = 50257

PEER = r"""
import sys, time, resource
start = float(sys.argv[1])
threads, length, batch, steps = map(int, sys.argv[2:6])
rank, ranks, port = map(int, sys.argv[6:9])
peer, bucket_mib = sys.argv[9], float(sys.argv[10])
batch //= ranks
import torch
from torch import nn
import torch.nn.functional as F
torch.set_num_threads(threads)
torch.manual_seed(1)
D, L, H, V, P = 768, 12, 12, 50257, 1024

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (t.view(B, T, H, D // H).transpose(1, 2) for t in self.qkv(self.n1(x)).split(D, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, D)
        x = x + self.o(y)
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, D), nn.Embedding(P, D)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V, bias=False)
        self.head.weight = self.tokens.weight
    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, V), labels.view(-1))

model = Model()
if ranks > 1:
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    if peer == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket_mib, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
data = torch.randint(257, (steps, batch, length + 1))
times = []
for step in range(steps):
    begin = time.time()
    ids, labels = data[step, :, :-1].contiguous(), data[step, :, 1:].contiguous()
    loss = model(ids, labels)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss.item()
    times.append(time.time() - begin)
    if step == 0:
        first = time.time() - start
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(first, times[0], min(times[1:]), rss)
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_peer(args):
    start, port = time.time(), free_port()
    processes = [subprocess.Popen([sys.executable, "-c", PEER, str(start), str(args.threads), str(args.seq_len),
                                   str(args.batch), str(args.steps), str(rank), str(args.ranks), str(port), args.peer,
                                   str(args.bucket)],
                                  stdout=subprocess.PIPE, text=True) for rank in range(args.ranks)]
    ends = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("PyTorch failed")
    ranks = [tuple(map(float, out.split())) for out in ends]
    first, first_step, best_step, _ = map(max, zip(*ranks))
    return {"startup": first - first_step, "step": best_step, "rss": sum(r[3] for r in ranks)}


def children_of(process):
    """Process ids of the ranks: of plimsoll-train itself, or below the launcher."""
    found, todo = [], [process.pid]
    while todo:
        pid = todo.pop()
        if "plimsoll-train" in Path(f"/proc/{pid}/comm").read_text():
            found.append(pid)
        todo += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found


def run_plimsoll(args, folder):
    for old in (folder / "run").glob("**/*"):
        if old.is_file():
            old.unlink()
    command = [str(args.bin / "plimsoll-train"), "--model", str(folder / "gpt2.json"),
               "--data.shards", str(folder / "tokens" / "*.h5"), "--seq-len", str(args.seq_len),
               "--micro-batch", str(args.batch // args.ranks), "--global-batch", str(args.batch), "--steps", str(args.steps + 1000),
               "--lr", "1e-4", "--schedule", "constant", "--run.dir", str(folder / "run"), "--run.threads", str(args.threads),
               "--run.log-every", "1", "--dp", str(args.ranks), "--zero", str(args.zero),
               "--layout.bucket", f"{args.bucket}MiB"]
    if args.ranks > 1:
        command = ["mpiexec", "-n", str(args.ranks), *command]
    start = time.time()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    first = None
    rows = 0
    for line in process.stderr:
        if re.match(r"\s*(\d\d:\d\d:\d\d\s+)?\d+\s+\d+\.\d+", line):
            first = first or time.time() - start
            rows += 1
            if rows >= args.steps:
                break
    ranks = children_of(process)
    peak = sum(next(int(l.split()[1]) * 1024 for l in open(f"/proc/{pid}/status") if l.startswith("VmHWM")) for pid in ranks)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    process.stderr.close()
    process.wait()
    if first is None:
        sys.exit("plimsoll-train printed no step")
    times = [row["seconds"] for row in map(json.loads, open(folder / "run" / "metrics.jsonl")) if "loss" in row]
    return {"startup": first - times[0], "step": min(times[1:args.steps]), "rss": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=Path, nargs="?", default=Path(os.environ.get("PLIMSOLL_BIN", "build/release/bin")))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--zero", type=int, default=1)
    parser.add_argument("--peer", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--bucket", type=int, default=25, help="MiB")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        (folder / "text.txt").write_text("".join(f"number {i} of many, and {i * i % 97} more\n" for i in range(60000)))
        subprocess.run([str(args.bin / "plimsoll-shard"), "--input", str(folder / "text.txt"), "--tokenizer", "bytes",
                        "--out", str(folder / "tokens")], check=True, capture_output=True)
        (folder / "gpt2.json").write_text(json.dumps({
            "model_type": "gpt2", "vocab_size": VOCAB, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}))
        ours, peers = [], []
        for _ in range(args.rounds):
            peers.append(run_peer(args))
            ours.append(run_plimsoll(args, folder))

    tokens = args.seq_len * args.batch
    flops = 6 * (12 * 12 * 768**2 + VOCAB * 768) + 12 * 12 * 768 * args.seq_len
    print(f"GPT-2 124M, fp32, {args.ranks} ranks, {args.threads} threads each, batch {args.batch} x {args.seq_len}, best of {args.rounds}")
    print(f"{'':14}{'tok/s':>9}{'GFLOP/s':>9}{'RSS MiB':>9}{'start s':>9}")
    peer_name = "torch eager" if args.ranks == 1 else f"torch {args.peer}"
    figures = {}
    for label, runs in ((peer_name, peers), ("plimsoll", ours)):
        rate = tokens / min(r["step"] for r in runs)
        rss = statistics.median(r["rss"] for r in runs) / 2**20
        startup = statistics.median(r["startup"] for r in runs)
        figures[label] = (rate, rss, startup)
        print(f"{label:14}{rate:9.1f}{rate * flops / 1e9:9.1f}{rss:9.0f}{startup:9.2f}")
    a, b = figures["plimsoll"], figures[peer_name]
    print(f"{'ratio':14}{a[0] / b[0]:9.2f}{'':9}{a[1] / b[1]:9.2f}{a[2] / b[2]:9.2f}")


if __name__ == "__main__":
    main()
