#!/usr/bin/env python3
"""parity_table.py FIGURES DOC: writes the tables of the parity matrix between the two marks in DOC.

FIGURES: one line per run, by tabs: row, ranks, fp64, fp32, bf16 or rounding (of bf16 beside fp32, on one rank), micro-batches, largest
relative difference of loss, norm, gradient. Standard library only.
"""

import sys

BEGIN = "<!-- parity matrix: written by make -f Makefile.local parity -->"
END = "<!-- end of the parity matrix -->"
KINDS = ("fp64", "fp32", "bf16", "rounding")


def read_figures(lines):
    """{(row, ranks): {kind: [loss, norm, gradient]}}, the largest over the runs of a row; in the order of the file."""
    rows = {}
    for number, line in enumerate(lines, 1):
        words = line.rstrip("\n").split("\t")
        if len(words) != 7 or words[2] not in KINDS:
            raise SystemExit(f"line {number} is no row of figures: {line!r}")
        of_row = rows.setdefault((words[0], int(words[1])), {})
        figures = [float(word) for word in words[4:]]
        known = of_row.setdefault(words[2], figures)
        of_row[words[2]] = [max(a, b) for a, b in zip(known, figures)]
    return rows


def cells_of(figures, kind):
    return [f"{value:.0e}" if value else "0" for value in figures[kind]] if kind in figures else ["–"] * 3


def layout_of(text):
    return " ".join(word for word in text.split() if word not in ("mpi", "bf16", "bf16=bits"))


def line_of(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def table_of(rows):
    lines = [line_of("ranks", "layout", "fp64: loss", "norm", "gradient", "fp32: loss", "norm", "gradient"), "|" + "---|" * 8]
    for (text, ranks), figures in rows.items():
        if "fp64" in figures or "fp32" in figures:
            lines.append(line_of(ranks, f"`{layout_of(text)}`", *cells_of(figures, "fp64"), *cells_of(figures, "fp32")))
    return lines


def bf16_table_of(rows):
    lines = [line_of("ranks", "layout", "bf16: loss", "norm", "gradient"), "|" + "---|" * 5]
    for (text, _), figures in rows.items():
        if "rounding" in figures:
            lines.append(line_of(1, f"`{layout_of(text)}`, bf16 beside fp32", *cells_of(figures, "rounding")))
    for (text, ranks), figures in rows.items():
        if "bf16" in figures:
            claim = ", the same bits" if "bf16=bits" in text.split() else ""
            lines.append(line_of(ranks, f"`{layout_of(text)}`{claim}", *cells_of(figures, "bf16")))
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
    main_table, bf16_table = table_of(rows), bf16_table_of(rows)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(before + "\n".join([BEGIN, *main_table, "", *bf16_table, END]) + after)
    print(f"parity    {len(main_table) - 2} layouts written into {sys.argv[2]}, {len(bf16_table) - 2} rows of bf16")


if __name__ == "__main__":
    main()
