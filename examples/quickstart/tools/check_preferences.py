#!/usr/bin/env python3
"""Checks that the quickstart's preference data can only be learnt from its manner.

The chosen answer of a pair is direct, polite and complete; the rejected one is evasive, rude, padded or in
the wrong language. Two shortcuts would give the same rewards without learning that: the length of an answer,
and its first token. This script measures how many pairs each shortcut decides, and refuses more than
LIMIT. It also checks the shape of the files: keys, counts, languages, no shared prompt.

    check_preferences.py [--train FILE] [--eval FILE] [--tokenizer tokenizer.json]

Needs Python 3.9 and nothing else. Exits 0 if every rule holds, 1 with the broken ones on stderr otherwise.
"""
import argparse
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path

LIMIT = 0.70            # the largest share of pairs that a shortcut may decide
SPREAD = 0.60           # chosen is the longer answer in 1 - SPREAD .. SPREAD of the pairs
LENGTH_RATIO = 1.5      # the longer answer of a same-language pair has at most this many times the characters
MIN_ROWS = {"train": 240, "eval": 60}
MIN_LANGUAGE_SHARE = 0.4
MAX_PROMPT_OVERLAP = 0.75
KEYS = ["prompt", "chosen", "rejected"]
HERE = Path(__file__).resolve().parent

CJK = re.compile(r"[\u3400-\u9fff]")
TOKEN = re.compile(r"[A-Za-z]+(?:'[a-z]+)?|[0-9]+|[\u3400-\u9fff]|[^\sA-Za-z0-9\u3400-\u9fff]")


def language(text):
    """"zh" if Chinese characters outnumber Latin letters, else "en"."""
    return "zh" if len(CJK.findall(text)) > len(re.findall(r"[A-Za-z]", text)) / 4 else "en"


def simple_tokens(text):
    """Words, numbers, single Chinese characters and punctuation marks."""
    return TOKEN.findall(text)


# ---- the base model's own tokenizer ----

def byte_alphabet():
    """The printable stand-in of every byte in a byte-level BPE vocabulary."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in kept}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(kept))
    return table


class BaseTokenizer:
    r"""Pieces of a text under a byte-level BPE tokenizer.json with Qwen2's split rule.

    Python's `re` has no \p{L} and \p{N}; word characters without digits and digits stand in for them, which
    is the same on these texts. Special tokens and NFC are left out: the texts need neither.
    """
    SPLIT = re.compile(r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|(?:[^\r\n\w]|_)?[^\W\d_]+|\d"
                       r"| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

    def __init__(self, path):
        model = json.loads(Path(path).read_text(encoding="utf-8"))["model"]
        pairs = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self.alphabet = byte_alphabet()

    def merge(self, word):
        parts = [self.alphabet[b] for b in word.encode("utf-8")]
        while len(parts) > 1:
            rank, i = min((self.ranks.get(pair, math.inf), i) for i, pair in enumerate(zip(parts, parts[1:])))
            if rank == math.inf:
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        return parts

    def __call__(self, text):
        return [part for word in self.SPLIT.findall(text) for part in self.merge(word)]


# ---- reading ----

def read_rows(path, kind, problems):
    rows = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not line:
            continue
        row = json.loads(line)
        if list(row) != KEYS:
            problems.append(f"{path}:{number}: keys are {list(row)}, expected {KEYS}")
        elif not all(isinstance(row[key], str) and row[key].strip() for key in KEYS):
            problems.append(f"{path}:{number}: every value must be a string that is not empty")
        elif row["chosen"] == row["rejected"]:
            problems.append(f"{path}:{number}: chosen equals rejected")
        else:
            rows.append(row)
    if len(rows) < MIN_ROWS[kind]:
        problems.append(f"{path}: {len(rows)} usable rows, expected at least {MIN_ROWS[kind]}")
    return rows


# ---- prompts and languages ----

def normal(text):
    return "".join(simple_tokens(text.lower()))


def overlap(left, right):
    """Jaccard overlap of two token sets."""
    return len(left & right) / len(left | right)


def check_prompts(train, held_out, problems):
    seen = {}
    for row in train + held_out:
        key = normal(row["prompt"])
        if key in seen:
            problems.append(f"prompt given twice: {row['prompt']!r}")
        seen[key] = row
    answers = Counter(normal(row[key]) for row in train + held_out for key in ("chosen", "rejected"))
    problems.extend(f"answer given {n} times: {text!r}" for text, n in answers.items() if n > 1)
    train_sets = [(set(simple_tokens(row["prompt"].lower())), row) for row in train]
    closest = 0.0
    for row in held_out:
        tokens = set(simple_tokens(row["prompt"].lower()))
        value, near = max(((overlap(tokens, other), r) for other, r in train_sets), key=lambda x: x[0])
        closest = max(closest, value)
        if value > MAX_PROMPT_OVERLAP:
            problems.append(f"held-out prompt {row['prompt']!r} nearly repeats {near['prompt']!r}")
    print(f"prompts: {len(seen)} different; closest train/eval pair overlaps {closest:.2f}")


def check_languages(name, rows, problems):
    prompts = Counter(language(row["prompt"]) for row in rows)
    for code in ("en", "zh"):
        share = prompts[code] / len(rows)
        if share < MIN_LANGUAGE_SHARE:
            problems.append(f"{name}: {share:.2f} of the prompts are {code}, expected {MIN_LANGUAGE_SHARE}")
    wrong = Counter(language(r["prompt"]) for r in rows if language(r["rejected"]) != language(r["prompt"]))
    for row in rows:
        if language(row["chosen"]) != language(row["prompt"]):
            problems.append(f"{name}: chosen is not in the language of {row['prompt']!r}")
    if not wrong["en"] or not wrong["zh"]:
        problems.append(f"{name}: rejected answers in the wrong language must occur for both languages")
    print(f"{name}: {len(rows)} rows, prompts en {prompts['en']}, zh {prompts['zh']}; rejected in the wrong "
          f"language: {wrong['en']} en prompts, {wrong['zh']} zh prompts")


# ---- the length shortcut ----

def share_longer(rows, measure):
    """Share of pairs whose chosen answer is the longer one; a tie counts half."""
    score = 0.0
    for row in rows:
        chosen, rejected = measure(row["chosen"]), measure(row["rejected"])
        score += 0.5 if chosen == rejected else float(chosen > rejected)
    return score / len(rows)


def check_lengths(name, rows, tokenize, problems):
    measures = {"characters": len, "tokens": lambda text: len(simple_tokens(text)),
                "bytes": lambda text: len(text.encode("utf-8"))}
    if tokenize:
        measures["the base's tokens"] = lambda text: len(tokenize(text))
    same = [row for row in rows if language(row["chosen"]) == language(row["rejected"])]
    groups = {"all": rows, "same language": same}
    groups.update({code: [r for r in same if language(r["prompt"]) == code] for code in ("en", "zh")})
    for group, members in groups.items():
        figures = {key: share_longer(members, measure) for key, measure in measures.items()}
        print(f"{name}, {group}: chosen longer in "
              + ", ".join(f"{value:.3f} by {key}" for key, value in figures.items()))
        bound = SPREAD if group != "all" else LIMIT
        for key, value in figures.items():
            if max(value, 1 - value) > bound:
                problems.append(f"{name}, {group}: length in {key} decides {max(value, 1 - value):.3f} "
                                f"of the pairs, at most {bound}")
    for row in same:
        short, long = sorted((len(row["chosen"]), len(row["rejected"])))
        if long > LENGTH_RATIO * short:
            problems.append(f"{name}: answers of {short} and {long} characters to {row['prompt']!r}")


# ---- the first-token shortcut ----

def fit_first(rows, first):
    """Score of each first token: log odds of opening a chosen answer."""
    chosen = Counter(first(row["chosen"]) for row in rows)
    rejected = Counter(first(row["rejected"]) for row in rows)
    return {token: math.log((chosen[token] + 1) / (rejected[token] + 1)) for token in chosen | rejected}


def apply_first(rows, first, scores):
    """Share of pairs in which the chosen answer's first token scores higher; a tie counts half."""
    total = 0.0
    for row in rows:
        margin = scores.get(first(row["chosen"]), 0.0) - scores.get(first(row["rejected"]), 0.0)
        total += 0.5 if margin == 0 else float(margin > 0)
    return total / len(rows)


def two_fold(rows, first):
    even, odd = rows[0::2], rows[1::2]
    decided = (apply_first(odd, first, fit_first(even, first)) * len(odd)
               + apply_first(even, first, fit_first(odd, first)) * len(even))
    return decided / len(rows)


def check_first_tokens(train, held_out, tokenize, problems):
    notions = {"first character": lambda text: text[0], "first two characters": lambda text: text[:2],
               "first word": lambda text: simple_tokens(text)[0].lower()}
    if tokenize:
        notions["first token of the base"] = lambda text: tokenize(text)[0]
    for notion, first in notions.items():
        scores = fit_first(train, first)
        figures = {"train, as fitted": apply_first(train, first, scores),
                   "train, two folds": two_fold(train, first), "eval": apply_first(held_out, first, scores)}
        shared = sum(first(r["chosen"]) == first(r["rejected"]) for r in train) / len(train)
        print(f"{notion} (shared within {shared:.2f} of the pairs) decides "
              + ", ".join(f"{value:.3f} of {key}" for key, value in figures.items()))
        problems.extend(f"the {notion} decides {value:.3f} of {key}, at most {LIMIT}"
                        for key, value in figures.items() if value > LIMIT)


def main():
    data = HERE.parent / "data"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", default=data / "preference.train.jsonl")
    parser.add_argument("--eval", default=data / "preference.eval.jsonl")
    parser.add_argument("--tokenizer", default=HERE.parent / "base" / "tokenizer.json")
    options = parser.parse_args()
    problems = []
    tokenize = BaseTokenizer(options.tokenizer) if Path(options.tokenizer).exists() else None
    train, held_out = (read_rows(options.train, "train", problems), read_rows(options.eval, "eval", problems))
    if train and held_out:
        check_prompts(train, held_out, problems)
        for name, rows in (("train", train), ("eval", held_out)):
            check_languages(name, rows, problems)
            check_lengths(name, rows, tokenize, problems)
        check_first_tokens(train, held_out, tokenize, problems)
    for problem in problems:
        print(f"check_preferences: {problem}", file=sys.stderr)
    print("preference data: " + (f"{len(problems)} rules broken" if problems else "every rule holds"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
