"""Prints one table of what test.sh did: stage, seconds, tests passed, failed and skipped; the last line is the sum.

summarize_tests.py RESULTS reads RESULTS/stages (name, seconds, outcome) and RESULTS/<stage>.xml (CTest's JUnit file). A
CTest test is a binary or a pytest file with many cases: they are counted from its own closing lines. Exit 0 when every stage
succeeded, at least one test ran and none failed.
"""

import os
import re
import sys
import xml.etree.ElementTree

GTEST = {
    "passed": re.compile(r"^\[  PASSED  \] (\d+) tests?\.", re.M),
    "failed": re.compile(r"^\[  FAILED  \] (\d+) tests?, listed below", re.M),
    "skipped": re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below", re.M),
}
PYTEST_LINE = re.compile(r"^(?:=+ )?((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.M)
KINDS = ("passed", "failed", "skipped")


def count_cases(output, status):
    """Cases of one CTest test as (passed, failed, skipped), from its output and CTest's own verdict."""
    counts = dict.fromkeys(KINDS, 0)
    pytest = PYTEST_LINE.findall(output)
    if GTEST["passed"].search(output):
        for kind in KINDS:
            counts[kind] = sum(int(number) for number in GTEST[kind].findall(output))
    elif pytest:
        for line in pytest:
            for number, word in re.findall(r"(\d+) (\w+)", line):
                kind = {"error": "failed", "errors": "failed", "xfailed": "skipped"}.get(word, word)
                if kind in counts:
                    counts[kind] += int(number)
    if status == "fail" and counts["failed"] == 0:
        counts["failed"] = 1  # a crash or a time-out: no closing line to count
    if status == "notrun" or (status == "run" and not any(counts.values())):
        counts["passed" if status == "run" else "skipped"] += 1
    return tuple(counts[kind] for kind in KINDS)


def count_file(path):
    totals = [0, 0, 0]
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        for index, number in enumerate(count_cases(output, case.get("status"))):
            totals[index] += number
    return totals


def main():
    results = sys.argv[1]
    good = True
    sums = [0, 0, 0]
    print(f"{'stage':<14} {'seconds':>8} {'passed':>8} {'failed':>8} {'skipped':>8}")
    with open(os.path.join(results, "stages"), encoding="utf-8") as lines:
        stages = [line.split() for line in lines]
    for name, seconds, outcome in stages:
        path = os.path.join(results, name + ".xml")
        cells = ["-"] * 3
        if os.path.exists(path):
            counts = count_file(path)
            sums = [total + count for total, count in zip(sums, counts)]
            cells = [str(count) for count in counts]
        good = good and outcome == "ok"
        print(f"{name:<14} {seconds:>8} {cells[0]:>8} {cells[1]:>8} {cells[2]:>8}"
              + ("" if outcome == "ok" else f"  {outcome}"))
    print(f"{'total':<14} {sum(int(stage[1]) for stage in stages):>8}")
    print(f"{sums[0]} passed, {sums[1]} failed, {sums[2]} skipped")
    return 0 if good and sums[0] > 0 and sums[1] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
