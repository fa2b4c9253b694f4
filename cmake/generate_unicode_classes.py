#!/usr/bin/env python3
"""Writes src/data/generated/unicode_classes.inc: one byte for each code point, as a table of two stages.

    python3 cmake/generate_unicode_classes.py      (Python with unicodedata 14.0, such as 3.11)

Categories and white space come from tests/data/cases/tokenizer/unicode/classes.tsv, which holds them as the regex
engine of the tokenizers library has them; what matters for NFC comes from Python, without the marks that the
library's older NFC does not know (nfc_exceptions.txt, and U+11930, which only Unicode 13 composes).
"""
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data/cases/tokenizer/unicode"
OUT = ROOT / "src/data/generated/unicode_classes.inc"
CATEGORIES = ("Cn Cc Cf Co Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No "
              "Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp").split()
SPACE, MARK, UNSURE = 32, 64, 128
BLOCK = 256


def read_classes(table):
    for line in (DATA / "classes.tsv").read_text().splitlines():
        if line.startswith("#"):
            continue
        first, last, name = line.split("\t")
        for code in range(int(first, 16), int(last, 16) + 1):
            if name == "space":
                table[code] |= SPACE
            else:
                table[code] |= CATEGORIES.index(name)


def second_parts():
    """Code points that may compose with one before them."""
    found = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for code in range(0x110000):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if unicodedata.normalize("NFC", pair) == chr(code):
                found.add(ord(pair[1]))
    return found


def add_nfc(table):
    unknown = {0x11930}
    for line in (DATA / "nfc_exceptions.txt").read_text().splitlines():
        if not line.startswith("#"):
            unknown.add(int(line.split("\t")[0], 16))
    seconds = second_parts()
    for code in range(0x110000):
        if code in unknown or 0xD800 <= code < 0xE000:
            continue
        if unicodedata.combining(chr(code)):
            table[code] |= MARK
        if code in seconds or unicodedata.normalize("NFC", chr(code)) != chr(code):
            table[code] |= UNSURE


def rows(values, each=32):
    return "\n".join(",".join(map(str, values[i:i + each])) + "," for i in range(0, len(values), each))


def main():
    if unicodedata.unidata_version != "14.0.0":
        raise SystemExit(f"needs unicodedata 14.0.0, this Python has {unicodedata.unidata_version}")
    table = [0] * 0x110000
    read_classes(table)
    add_nfc(table)
    blocks, index = {}, []
    for start in range(0, len(table), BLOCK):
        index.append(blocks.setdefault(tuple(table[start:start + BLOCK]), len(blocks)))
    assert len(blocks) <= 256
    second = [value for block in blocks for value in block]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("// Made by cmake/generate_unicode_classes.py; do not edit.\n"
                   f"inline constexpr unsigned kBlockBits = {BLOCK.bit_length() - 1};\n"
                   f"inline constexpr unsigned char kBlockOf[{len(index)}] = {{\n{rows(index)}\n}};\n"
                   f"inline constexpr unsigned char kBlocks[{len(second)}] = {{\n{rows(second)}\n}};\n")


main()
