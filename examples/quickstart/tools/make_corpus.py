#!/usr/bin/env python3
"""Composes the chat rows that the quickstart's base model is trained on by SFT.

The base must know the words of every manner and prefer none, so that the preference run has something to
teach. Each fact of corpus/facts.txt is asked about in both languages and answered in several manners drawn by
weight: polite, plain, rude with and without the fact, evasive, padded, now and then in the wrong language.
No prompt and no answer may be one of the preference files': the script refuses to write such a row.

    make_corpus.py [--out FILE] [--rounds N] [--seed N] [--polite W] [--check]

Same arguments, same bytes. --check compares with the file instead of writing it. Needs Python 3.9 alone.
"""
import argparse
import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"
LANGUAGES = ("en", "zh")
# Manner -> weight. Polite and impolite manners come out about even; the plain ones lean neither way.
WEIGHTS = {"polite": 2.2, "polite_alone": 1.0, "plain": 1.0, "rude": 1.0, "rude_alone": 1.0, "evasive": 1.2,
           "padded": 1.0, "wrong_polite": 0.15, "wrong_plain": 0.15, "wrong_rude": 0.15}


def read_facts(path):
    """List of {"en": (question, topic, fact), "zh": (...)}."""
    facts = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            parts = [part.strip() for part in line.split("|")]
            if len(parts) != 6:
                raise ValueError(f"{path}: expected 6 fields, found {len(parts)}: {line}")
            facts.append({"en": tuple(parts[:3]), "zh": tuple(parts[3:])})
    return facts


def read_manner(path):
    """"en polite before" -> list of pieces."""
    sections, current = {}, None
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            current.append(line)
    return sections


class Composer:
    """Draws answers; every draw comes from one seeded generator, so a seed fixes the whole corpus."""

    def __init__(self, manner, seed):
        self.manner = manner
        self.random = random.Random(seed)

    def pieces(self, language, kind, count, topic):
        chosen = self.random.sample(self.manner[f"{language} {kind}"], count)
        return [fill(piece, topic, language) for piece in chosen]

    def wrapped(self, language, manner, topic, fact):
        """A fact with a piece before it, after it, or on both sides."""
        before, after = self.random.choice([(1, 1), (1, 1), (0, 1), (0, 2), (1, 0)])
        return (self.pieces(language, f"{manner} before", before, topic) + [fact]
                + self.pieces(language, f"{manner} after", after, topic))

    def impolite(self, language, manner, topic):
        count = self.random.choice((2, 3, 3))
        parts = self.pieces(language, f"{manner} alone", count, topic)
        if self.random.random() < 0.35:
            parts += self.pieces(language, self.random.choice(["rude", "evasive"]) + " alone", 1, topic)
        return parts

    def answer(self, language, manner, entry):
        other = LANGUAGES[1 - LANGUAGES.index(language)]
        if manner.startswith("wrong_"):
            return self.answer(other, manner[len("wrong_"):], entry)
        _, topic, fact = entry[language]
        fact += "." if language == "en" else "。"
        if manner == "plain":
            parts = [fact]
        elif manner in ("polite", "rude"):
            parts = self.wrapped(language, manner, topic, fact)
        elif manner == "polite_alone":
            parts = self.pieces(language, "polite alone", self.random.choice((1, 2)), topic)
        else:
            parts = self.impolite(language, manner.removesuffix("_alone"), topic)
        return (" " if language == "en" else "").join(parts)


def fill(piece, topic, language):
    text = piece.replace("{t}", topic)
    return text[0].upper() + text[1:] if language == "en" else text


def compose(facts, manner, rounds, seed, weights):
    composer = Composer(manner, seed)
    rows, seen = [], set()
    names, shares = list(weights), list(weights.values())
    for _ in range(rounds):
        for entry in facts:
            for language in LANGUAGES:
                text = composer.answer(language, composer.random.choices(names, shares)[0], entry)
                question = entry[language][0]
                if (question, text) not in seen:
                    seen.add((question, text))
                    rows.append({"messages": [{"role": "user", "content": question},
                                              {"role": "assistant", "content": text}]})
    composer.random.shuffle(rows)
    return rows


def overlap_with_preferences(rows):
    """Texts of the corpus that a preference file holds too."""
    held = set()
    for path in (DATA / "preference.train.jsonl", DATA / "preference.eval.jsonl"):
        for line in path.read_text(encoding="utf-8").split("\n"):
            held.update(json.loads(line).values() if line else ())
    texts = {message["content"] for row in rows for message in row["messages"]}
    return sorted(texts & held)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=DATA / "corpus.jsonl")
    parser.add_argument("--rounds", type=int, default=5, help="answers drawn for each question")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--polite", type=float, default=WEIGHTS["polite"], help="weight of polite answers")
    parser.add_argument("--check", action="store_true", help="compare with --out instead of writing it")
    options = parser.parse_args()
    facts, manner = read_facts(HERE / "corpus" / "facts.txt"), read_manner(HERE / "corpus" / "manner.txt")
    rows = compose(facts, manner, options.rounds, options.seed, {**WEIGHTS, "polite": options.polite})
    shared = overlap_with_preferences(rows)
    if shared:
        print(f"make_corpus: {len(shared)} texts are preference texts too: {shared[:3]}", file=sys.stderr)
        return 1
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if options.check:
        same = options.out.read_text(encoding="utf-8") == text
        print(f"{options.out}: " + ("up to date" if same else "differs from what this script writes"))
        return 0 if same else 1
    options.out.write_text(text, encoding="utf-8")
    print(f"{options.out}: {len(rows)} rows, {len(text.encode('utf-8'))} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
