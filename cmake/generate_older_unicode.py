#!/usr/bin/env python3
"""Writes src/data/generated/older_unicode.inc: sets of code points that the parts of the tokenizers library take from
tables of other Unicode versions than its regular expressions.

    pip install tokenizers==0.23.3 && python3 cmake/generate_older_unicode.py

Every set is asked of the library, one code point at a time, so the tables are what it does.
"""
from pathlib import Path

from tokenizers import normalizers, pre_tokenizers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src/data/generated/older_unicode.inc"
POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def bert(**options):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **options})


def ranges(codes):
    found = []
    for code in codes:
        if found and found[-1][1] + 1 == code:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def removed_by(normalizer):
    return [code for code in POINTS if normalizer.normalize_str(chr(code)) == ""]


def changed_by(normalizer):
    return [code for code in POINTS if normalizer.normalize_str(chr(code)) != chr(code)]


def cut_by(pre_tokenizer):
    return [code for code in POINTS if len(pre_tokenizer.pre_tokenize_str("a" + chr(code) + "a")) == 3]


def in_word():
    split = pre_tokenizers.Whitespace()
    return [code for code in POINTS if [w for w, _ in split.pre_tokenize_str("a" + chr(code))] == ["a" + chr(code)]]


def lower_runs():
    """(first, last, step, distance) of code points whose lower case is one code point at one distance."""
    lower = normalizers.Lowercase()
    runs = []
    for code in POINTS:
        text = lower.normalize_str(chr(code))
        if text == chr(code) or len(text) != 1:
            continue
        distance = ord(text) - code
        if runs:
            first, last, step, before = runs[-1]
            if before == distance and (code - last == step or (first == last and code - last <= 2)):
                runs[-1] = (first, code, code - last, distance)
                continue
        runs.append((code, code, 1, distance))
    longer = [code for code in POINTS if len(lower.normalize_str(chr(code))) > 1]
    assert longer == [0x130], longer
    return runs


def rows(items, each=6):
    cells = ["{" + ", ".join(str(v) if v < 0 else f"{v:#x}" for v in item) + "}," for item in items]
    return "\n".join(" ".join(cells[i:i + each]) for i in range(0, len(cells), each))


def main():
    sets = {
        "kMarks": removed_by(normalizers.StripAccents()),
        "kNonspacingMarks": removed_by(bert(strip_accents=True)),
        "kControls": removed_by(bert(clean_text=True)),
        "kPunctuation": cut_by(pre_tokenizers.Punctuation()),
        "kNumbers": cut_by(pre_tokenizers.Digits(individual_digits=True)),
        "kWordCharacters": in_word(),
        "kCompatibility": changed_by(normalizers.NFKD()),
        "kCanonical": changed_by(normalizers.NFD()),
    }
    text = "// Made by cmake/generate_older_unicode.py; do not edit.\n"
    for name, codes in sets.items():
        text += f"constexpr CodePointRange {name}[] = {{\n{rows(ranges(codes))}\n}};\n"
    text += f"constexpr LowerRun kLowerRuns[] = {{\n{rows(lower_runs(), 4)}\n}};\n"
    OUT.write_text(text)


main()
