"""Prints the requirements for the CUDA runtime and CUPTI wheels of the torch in this environment, one a line.

Nothing for a CPU wheel. Newer wheels name one meta package (`cuda-toolkit`) with a list of parts.
"""

import importlib.metadata
import re
import sys

PARTS = ("cudart", "cupti")


def main():
    found = []
    requirements = importlib.metadata.requires("torch") or []
    for requirement in requirements:
        text, _, _ = requirement.partition(";")
        text = text.strip()
        if re.match(r"nvidia-cuda-(runtime|cupti)", text):
            found.append(text)
        toolkit = re.match(r"cuda-toolkit\[[^\]]*\](==\S+)", text)
        if toolkit:
            found.append(f"cuda-toolkit[{','.join(PARTS)}]{toolkit.group(1)}")
    print("\n".join(found))
    uses_cuda = any("cudnn" in requirement for requirement in requirements)
    return 0 if found or not uses_cuda else 1


if __name__ == "__main__":
    sys.exit(main())
