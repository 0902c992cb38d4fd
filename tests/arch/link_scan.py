"""Looks at what each built binary links. link_scan.py BIN_DIR LIB_DIR prints one line for each binary and its faults.

A tool that runs no model loads neither LibTorch nor CUDA or NCCL, and MPI only if several ranks may run it. Nothing but the
plug-ins names CUDA, NCCL or libtorch_cuda itself (LibTorch's CPU library brings the CUDA runtime of its wheel along). A
layer links layers above it only.
"""

import glob
import os
import re
import subprocess
import sys

from layers import LAYERS, MODEL_TOOLS, MPI_TOOLS

CUDA = re.compile(r"lib(torch_cuda|c10_cuda|cuda|cudart|cupti|nccl|cublas|cudnn)\b")
HEAVY = re.compile(r"lib(torch|c10|cuda|cudart|cupti|nccl)\w*\b")
MPI = re.compile(r"lib(mpi|mpich)\w*\b")


def needed(path):
    """What the file itself names."""
    text = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", text)


def loaded(path):
    """All that the loader brings, missing ones as they are."""
    text = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\s*(\S+) =>", text, re.M), re.findall(r"^\s*(\S+) => not found", text, re.M)


def tool_faults(path):
    name = os.path.basename(path)
    everything, missing = loaded(path)
    for library in missing:
        yield f"{name}: {library} is not found"
    for library in needed(path):
        if CUDA.match(library):
            yield f"{name}: links {library}"
    tool = name.removeprefix("plimsoll-")
    for library in everything:
        if (HEAVY.match(library) and tool not in MODEL_TOOLS) or (MPI.match(library) and tool not in MPI_TOOLS):
            yield f"{name}: loads {library}"


def layer_faults(path):
    name = os.path.basename(path)
    layer = name.removeprefix("libplimsoll_").removesuffix(".so")
    for library in needed(path):
        other = re.fullmatch(r"libplimsoll_(\w+)\.so", library)
        if other and other.group(1) not in LAYERS[layer]:
            yield f"{name}: links {library}, which {layer} may not use"
        if CUDA.match(library) and layer not in ("cuda", "cuda_torch"):
            yield f"{name}: links {library}"


def main():
    bin_dir, lib_dir = sys.argv[1:]
    tools = sorted(glob.glob(os.path.join(bin_dir, "plimsoll-*")))
    libraries = sorted(glob.glob(os.path.join(lib_dir, "libplimsoll_*.so")))
    faults = []
    for path in tools:
        everything, _ = loaded(path)
        print(f"{os.path.basename(path):<24} {len(everything):3} libraries, itself: {' '.join(needed(path))}")
        faults += tool_faults(path)
    for path in libraries:
        print(f"{os.path.basename(path):<24} itself: {' '.join(needed(path))}")
        faults += layer_faults(path)
    if not tools or not libraries:
        faults.append(f"no tool in {bin_dir} or no library in {lib_dir}")
    print("\n".join(faults) if faults else f"{len(tools)} tools and {len(libraries)} libraries link what they may")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
