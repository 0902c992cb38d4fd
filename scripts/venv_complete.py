"""Is this virtual environment whole? Run with its own Python: venv_complete.py REQUIREMENTS --no-dependencies|--with-dependencies

Exit 0 when each pinned package has its pinned version, each file that any installed package recorded is there in full size,
and (with dependencies) each dependency is there too. An interrupted install fails one of the three.
"""

import importlib.metadata
import os
import re
import subprocess
import sys


def pinned_versions(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            match = re.match(r"\s*([A-Za-z0-9._-]+)==(\S+)", line)
            if match:
                yield match.group(1), match.group(2)


def first_fault(requirements, with_dependencies):
    for name, wanted in pinned_versions(requirements):
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{name} is missing"
        if have.split("+")[0] != wanted.split("+")[0]:
            return f"{name} is {have}, not {wanted}"
    for distribution in importlib.metadata.distributions():
        if distribution.files is None:
            return f"{distribution.metadata['Name']} has no record of its files"
        for file in distribution.files:
            try:
                size = os.stat(file.locate()).st_size
            except OSError:
                if file.suffix == ".pyc":
                    continue
                return f"{file} is missing"
            if file.size is not None and file.size != size:
                return f"{file} has {size} bytes, not {file.size}"
    if with_dependencies:
        check = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "check"],
                               capture_output=True, text=True, check=False)
        if check.returncode != 0:
            return check.stdout.strip().splitlines()[0]
    return None


def main():
    fault = first_fault(sys.argv[1], sys.argv[2] == "--with-dependencies")
    if fault:
        print(f"not whole {sys.prefix}: {fault}")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())
