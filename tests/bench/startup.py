"""Start-up of each tool: best and median of five runs of --help, and how many libraries it loads. PLIMSOLL_BIN is the folder.

plimsoll-shard and plimsoll-reshard are meant to answer within 0.1 s; the others load LibTorch first.
"""

import glob
import os
import statistics
import subprocess
import sys
import time

RUNS = 5


def seconds_of(command):
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main():
    tools = sorted(glob.glob(os.path.join(os.environ["PLIMSOLL_BIN"], "plimsoll-*")))
    print(f"{'tool':<20} {'best s':>8} {'median s':>9} {'libraries':>10}")
    for tool in tools:
        seconds_of([tool, "--help"])  # fills the page cache
        seconds = [seconds_of([tool, "--help"]) for _ in range(RUNS)]
        libraries = subprocess.run(["ldd", tool], capture_output=True, text=True, check=True).stdout.count("=>")
        print(f"{os.path.basename(tool):<20} {min(seconds):>8.3f} {statistics.median(seconds):>9.3f} {libraries:>10}")
    return 0 if tools else 1


if __name__ == "__main__":
    sys.exit(main())
