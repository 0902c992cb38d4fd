"""The layer table of docs/architecture.md as data: who may include whom, and which third party belongs where."""

# A layer and what it may use besides itself, in the order of the table.
LAYERS = {
    "base": [],
    "layout": ["base"],
    "plan": ["base", "layout"],
    "mem": ["base"],
    "comm": ["base", "layout", "mem"],
    "comm_mpi": ["base", "layout", "mem", "comm"],
    "io": ["base", "layout", "mem", "comm"],
    "parquet": ["io"],
    "telemetry": ["base", "layout"],
    "engine": ["base", "layout", "plan", "mem", "comm", "telemetry"],
    "cuda": ["base", "layout", "mem", "comm"],
    "nn": ["base", "layout", "plan", "mem", "comm", "io", "telemetry", "engine"],
    "cuda_torch": ["base", "layout", "plan", "mem", "comm", "io", "telemetry", "engine", "nn"],
}

# Tools that run a model may use nn; the others never.
MODEL_TOOLS = ("train", "eval")
# Tools that a launcher may start several times for one job; the others never load MPI.
MPI_TOOLS = (*MODEL_TOOLS, "shard", "reshard", "bench")
TORCH_FREE = [layer for layer in LAYERS if layer not in ("nn", "cuda", "cuda_torch")]

# Third-party headers: (pattern of the include, where it may stand as a pattern of the path below libcommon/, what it is).
# A pattern that ends in .cpp keeps the types out of every header.
THIRD_PARTY = [
    (r"boost/", r"base/cli[^/]*\.cpp", "Boost"),
    (r"openssl/", r"base/.*\.cpp", "OpenSSL"),
    (r"fmt/", r".*", "fmt"),
    (r"nlohmann/", r".*", "nlohmann/json"),
    (r"liburing\.h", r"mem/.*\.cpp", "liburing"),
    (r"mpi\.h", r"comm_mpi/.*", "MPI"),
    (r"(hdf5|H5\w*)\.h", r"io/hdf5[^/]*\.cpp", "HDF5"),
    (r"isa-l(/|\.h)", r"io/.*\.cpp", "ISA-L"),
    (r"zstd\.h|zlib\.h|xxhash\.h", r"io/.*\.cpp", "a compression library"),
    (r"simdjson\.h", r"io/.*\.cpp", "simdjson"),
    (r"pcre2\.h|sentencepiece", r"io/.*\.cpp", "a tokenizer library"),
    (r"(arrow|parquet)/", r"parquet/.*\.cpp", "Arrow"),
    (r"prometheus/", r"telemetry/.*\.cpp", "prometheus-cpp"),
    (r"cuda\w*\.h|nccl\.h|cuda/", r"cuda(_torch)?/.*", "CUDA or NCCL"),
    (r"ATen/core/Tensor\.h", r"(nn|cuda_torch)/.*", "LibTorch"),
    (r"(ATen|c10|torch)/", r"(nn|cuda_torch)/.*\.(cpp|cu)", "LibTorch"),
]

# System headers with a folder that are no third party.
SYSTEM_FOLDERS = ("sys/", "linux/", "netinet/", "arpa/", "asm/", "bits/", "experimental/")

# Only these may print or end the process: everything else in the library throws.
MAY_PRINT_OR_EXIT = r"base/(run_tool|log|progress)[^/]*\.(cpp|hpp)|comm_mpi/run_with_mpi\.cpp"

MAX_LINES = 600
