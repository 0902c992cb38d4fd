#!/usr/bin/env python3
"""parity_table.py FIGURES DOC: writes the table of the parity matrix between the two marks in DOC.

FIGURES: one line per run, by tabs: row, ranks, fp64 or fp32, micro-batches, largest relative difference of loss, norm, gradient.
Standard library only.
"""

import sys

BEGIN = "<!-- parity matrix: written by make -f Makefile.local parity -->"
END = "<!-- end of the parity matrix -->"


def read_figures(lines):
    """{(row, ranks): {dtype: [loss, norm, gradient]}}, the largest over the runs of a row; in the order of the file."""
    rows = {}
    for number, line in enumerate(lines, 1):
        words = line.rstrip("\n").split("\t")
        if len(words) != 7 or words[2] not in ("fp64", "fp32"):
            raise SystemExit(f"line {number} is no row of figures: {line!r}")
        of_row = rows.setdefault((words[0], int(words[1])), {})
        figures = [float(word) for word in words[4:]]
        known = of_row.setdefault(words[2], figures)
        of_row[words[2]] = [max(a, b) for a, b in zip(known, figures)]
    return rows


def table_of(rows):
    lines = ["| ranks | layout | fp64: loss | norm | gradient | fp32: loss | norm | gradient |",
             "|---|---|---|---|---|---|---|---|"]
    for (text, ranks), figures in rows.items():
        cells = []
        for dtype in ("fp64", "fp32"):
            cells += [f"{value:.0e}" if value else "0" for value in figures[dtype]] if dtype in figures else ["–"] * 3
        words = [word for word in text.split() if word != "mpi"]
        lines.append(f"| {ranks} | `{' '.join(words)}` | " + " | ".join(cells) + " |")
    return lines


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__.splitlines()[0])
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = read_figures(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{sys.argv[2]} lacks the marks of the table")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + "\n".join(table_of(rows)) + "\n" + END + after)
    print(f"parity    {len(rows)} layouts written into {sys.argv[2]}")


if __name__ == "__main__":
    main()
