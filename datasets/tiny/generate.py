#!/usr/bin/env python3
"""Prints tiny.jsonl: short generated stories with a grammar that a small model can learn, free of third-party text.

The same bytes everywhere: the random numbers are a 64-bit linear congruential generator (Knuth's MMIX constants), not
Python's. tests/cli/test_shard_datasets.py compares the output with the committed file.
"""

import json
import sys

STATE = 20240601


def draw(choices):
    global STATE
    STATE = (STATE * 6364136223846793005 + 1442695040888963407) % 2**64
    return choices[(STATE >> 33) % len(choices)]


NAMES = ["Ada", "Bo", "Cleo", "Dov", "Esra", "Finn", "Gita", "Hugo"]
SHIPS = ["the Heron", "the Marlin", "the Old Tern", "the Petrel"]
GOODS = ["barrels of oil", "bales of cotton", "sacks of rice", "crates of tea", "tons of coal"]
PORTS = ["Aden", "Bergen", "Cadiz", "Dakar", "Lagos", "Riga"]
WEATHER = ["calm", "windy", "foggy", "rough"]
NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine"]


def story():
    name, ship, goods = draw(NAMES), draw(SHIPS), draw(GOODS)
    start = draw(PORTS)
    end = draw([port for port in PORTS if port != start])
    carried, limit = draw(range(8)), draw(range(8))
    weather = draw(WEATHER)
    lines = [f"{name} took {ship} from {start} to {end}.",
             f"{ship[0].upper()}{ship[1:]} may carry {NUMBERS[limit]} hundred {goods}."]
    if carried > limit:
        lines.append(f"There were {NUMBERS[carried]} hundred on the quay, so {name} left some in {start}.")
    else:
        lines.append(f"There were {NUMBERS[carried]} hundred on the quay, and {name} took them all.")
    lines.append(f"The sea was {weather}.")
    if weather == "rough":
        lines.append(f"The water stood at the line, but {ship} came to {end} safe and dry.")
    else:
        lines.append(f"After {draw(NUMBERS)} days {ship} came to {end}.")
    return " ".join(lines)


def main():
    for number in range(400):
        sys.stdout.write(json.dumps({"id": number, "text": "\n".join(story() for _ in range(draw([1, 1, 2, 3])))}) + "\n")


if __name__ == "__main__":
    main()
