"""Holds the source tree against the layer table; each fault is one line `file:line: what`.

include_scan.py ROOT looks at libcommon/ and tools/ (includes, forbidden calls) and at the length of every source file.
"""

import os
import re
import sys

from layers import LAYERS, MAX_LINES, MAY_PRINT_OR_EXIT, MODEL_TOOLS, SYSTEM_FOLDERS, THIRD_PARTY, TORCH_FREE

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
GENERATED = ("build_id.hpp",)
FORBIDDEN_CALLS = [
    (re.compile(r"(?<![\w.>])(?:std::|::)?(?:exit|_exit|quick_exit|abort|terminate)\s*\("), "ends the process"),
    (re.compile(r"(?<![\w.>])(?:std::)?(?:printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror)\s*\("), "prints"),
    (re.compile(r"\bstd::(?:cout|cerr|clog)\b|\bfmt::print\s*\("), "prints"),
]
OPEN_ENDS = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b")
SOURCES = (".cpp", ".hpp", ".cu", ".cuh", ".h", ".py", ".sh", ".cmake")


def without_comments_and_strings(text):
    """Same lines, with comments and the contents of literals blanked."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def allowed_layers(folder, name):
    if folder == "libcommon":
        return [name] + LAYERS[name]
    return list(TORCH_FREE) + (["nn"] if name in MODEL_TOOLS else [])


def third_party_fault(include, path_below):
    for pattern, place, what in THIRD_PARTY:
        if re.match(pattern, include):
            if re.fullmatch(place, path_below):
                return None
            # A narrower row may come first (Tensor.h) and a wider one after it; the first that matches decides.
            return f"<{include}> is {what}, which belongs in {place.replace(chr(92), '')} only"
    if "/" in include and not include.startswith(SYSTEM_FOLDERS):
        return f"<{include}> is in no row of the layer table (tests/arch/layers.py)"
    return None


def include_fault(kind, include, folder, name, path_below):
    if kind == "<":
        return third_party_fault(include, path_below)
    if include.startswith("."):
        return f'"{include}" is a relative include; name the layer'
    layer = include.split("/")[0]
    if layer in LAYERS:
        if layer in allowed_layers(folder, name):
            return None
        return f'"{include}": {name} may not use {layer}'
    if include in GENERATED or (folder == "tools" and "/" not in include):
        return None
    return f'"{include}" names no layer'


def scan_source(root, folder, path):
    below = os.path.relpath(path, os.path.join(root, folder))
    name = below.split(os.sep)[0]
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if folder == "libcommon" and name not in LAYERS:
        yield 1, f"folder '{name}' is no layer"
        return
    if path.endswith(".hpp") and not text.startswith("#pragma once\n"):
        yield 1, "a header starts with #pragma once"
    path_below = below if folder == "libcommon" else f"tools/{below}"
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        fault = match and include_fault(match.group(1), match.group(2), folder, name, path_below)
        if fault:
            yield number, fault
    if folder == "libcommon" and not re.fullmatch(MAY_PRINT_OR_EXIT, below):
        for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
            for pattern, what in FORBIDDEN_CALLS:
                match = pattern.search(line)
                if match:
                    yield number, f"'{match.group().strip(' (')}' {what}; library code throws"


def files_below(root, folder, endings):
    for directory, folders, files in os.walk(os.path.join(root, folder)):
        folders[:] = sorted(name for name in folders if name not in ("build", "__pycache__"))
        for name in sorted(files):
            if name.endswith(endings):
                yield os.path.join(directory, name)


def scan(root):
    """All faults of the tree as (path below root, line, what)."""
    faults = []
    for folder in ("libcommon", "tools"):
        for path in files_below(root, folder, (".cpp", ".hpp", ".cu")):
            faults += [(os.path.relpath(path, root), line, what) for line, what in scan_source(root, folder, path)]
    for folder in ("libcommon", "tools", "tests", "scripts", "cmake", "jobs", "slurm"):
        for path in files_below(root, folder, SOURCES):
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
            relative = os.path.relpath(path, root)
            if len(lines) > MAX_LINES:
                faults.append((relative, len(lines), f"{len(lines)} lines, at most {MAX_LINES}: split it"))
            faults += [(relative, number, f"open end '{OPEN_ENDS.search(line).group()}'")
                       for number, line in enumerate(lines, 1) if OPEN_ENDS.search(line)]
    return faults


def main():
    faults = scan(sys.argv[1])
    for path, line, what in faults:
        print(f"{path}:{line}: {what}")
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
