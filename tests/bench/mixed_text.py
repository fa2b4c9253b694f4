"""Makes the text that tokenizer.sh measures on: 20 MB of documents, the same bytes on every machine.

usage: mixed_text.py DJANGO_SDIST PRETIX_WHEEL MEGABYTES OUT

Real text of two pinned packages, no document twice:
  30 %  English prose     Django's manual
  25 %  code              Python, JavaScript, HTML of both packages
  27 %  other languages   translated sentences: Chinese, Japanese, Korean, Russian, Arabic, then others
  13 %  chats as JSON     turns of sentences, paragraphs and code sampled out of the above
   5 %  numbers and emoji tables of random numbers, dates, amounts, and lines with emoji
The documents, 2 to 16 kB each, are shuffled. OUT: each a little-endian 32-bit length and its UTF-8 bytes.
"""
import ast
import hashlib
import json
import random
import re
import struct
import sys
import tarfile
import zipfile

LANGUAGES = ["zh_Hans", "zh_Hant", "ja", "ko", "ru", "ar"]
MORE_LANGUAGES = ["de", "fr", "el", "uk", "hi", "th", "es", "pl", "fa", "tr", "vi", "he", "pt_BR", "cs", "nl", "it"]
SHARES = {"prose": 0.30, "code": 0.25, "languages": 0.27, "chats": 0.13, "numbers": 0.05}


def read_packages(sdist, wheel):
    files = {}
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            if member.isfile():
                files[member.name] = archive.extractfile(member).read()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                files[name] = archive.read(name)
    texts = {}
    for name in sorted(files):
        if name.endswith((".txt", ".py", ".js", ".html", ".po")):
            try:
                texts[name] = files[name].decode()
            except UnicodeDecodeError:
                continue
    return texts


def cut(text, rng):
    """Pieces of 2 to 16 kB, cut at line ends where there are any."""
    at = 0
    while at < len(text):
        end = min(len(text), at + rng.randint(2_000, 16_000))
        line = text.rfind("\n", at, end)
        end = line + 1 if line > at and end < len(text) else end
        yield text[at:end]
        at = end


def translations(texts, language):
    """The translated strings of a language, each once."""
    seen = {}
    for name, text in texts.items():
        if f"/locale/{language}/" not in name or not name.endswith(".po"):
            continue
        for block in re.findall(r'^msgstr(?:\[\d\])? ((?:"(?:[^"\\\n]|\\.)*"\s*\n?)+)', text, re.M):
            parts = re.findall(r'"(?:[^"\\\n]|\\.)*"', block)
            sentence = "".join(ast.literal_eval(part) for part in parts)
            if sentence and not sentence.startswith("Project-Id-Version"):
                seen[sentence] = None
    return list(seen)


def take(documents, size):
    """Documents up to that many bytes, or all."""
    taken, total = [], 0
    for document in documents:
        if total >= size:
            break
        taken.append(document)
        total += len(document.encode())
    return taken


def prose_documents(texts, rng):
    names = [name for name in texts if "/docs/" in name and name.endswith(".txt")]
    rng.shuffle(names)
    return [piece for name in names for piece in cut(texts[name], rng)]


def code_documents(texts, rng):
    pieces = []
    for ending, share in ((".py", 0.6), (".js", 0.2), (".html", 0.2)):
        names = [n for n in texts if n.endswith(ending) and "/locale/" not in n and ".min." not in n]
        rng.shuffle(names)
        found = [piece for name in names for piece in cut(texts[name], rng) if len(piece) > 200]
        pieces += [(index / share, piece) for index, piece in enumerate(found)]
    return [piece for _, piece in sorted(pieces, key=lambda pair: pair[0])]


def language_documents(texts, rng):
    documents = []
    for group in (LANGUAGES, MORE_LANGUAGES):
        of_group = []
        for language in group:
            of_group += cut("\n".join(translations(texts, language)), rng)
        rng.shuffle(of_group)
        documents += of_group
    return documents


def chat_documents(texts, rng, size):
    sentences = [s for language in LANGUAGES for s in translations(texts, language)]
    english = [p for name in texts if "/docs/" in name and name.endswith(".txt")
               for p in texts[name].split("\n\n") if 40 < len(p) < 800]
    code = [p for name in texts if name.endswith(".py") for p in texts[name].split("\n\n\n")
            if 40 < len(p) < 1500]
    total = 0
    while total < size:
        messages = []
        for turn in range(rng.randint(4, 12)):
            source = rng.choice((sentences, sentences, english, english, english, code))
            content = " ".join(rng.choice(source) for _ in range(rng.randint(1, 3)))
            messages.append({"role": "assistant" if turn % 2 else "user", "content": content})
        row = {"id": rng.getrandbits(48), "messages": messages, "score": round(rng.random(), 4)}
        document = json.dumps(row, ensure_ascii=False)
        total += len(document.encode())
        yield document


def number_documents(rng, size):
    emoji = [chr(c) for c in (*range(0x1F300, 0x1F5FF), *range(0x1F600, 0x1F64F), *range(0x1F900, 0x1F9FF))]
    total = 0
    while total < size:
        lines = []
        for row in range(rng.randint(40, 200)):
            cells = [str(rng.randint(0, 10**rng.randint(1, 12))), f"{rng.gauss(0, 1000):.{rng.randint(0, 6)}f}",
                     f"20{rng.randint(0, 40):02}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
                     f"{rng.random():e}", f"0x{rng.getrandbits(64):x}", f"{rng.randint(1, 99)}%"]
            rng.shuffle(cells)
            if rng.random() < 0.3:
                cells += [rng.choice(emoji) + rng.choice(("", "\u200d", "\ufe0f")) for _ in range(rng.randint(1, 5))]
            lines.append(rng.choice((",", "\t", " | ")).join(cells))
        document = "\n".join(lines)
        total += len(document.encode())
        yield document


def main():
    sdist, wheel, megabytes, out = sys.argv[1:]
    size = float(megabytes) * 1e6
    rng = random.Random(20)
    texts = read_packages(sdist, wheel)
    groups = {
        "prose": take(prose_documents(texts, rng), size * SHARES["prose"]),
        "code": take(code_documents(texts, rng), size * SHARES["code"]),
        "languages": take(language_documents(texts, rng), size * SHARES["languages"]),
        "chats": list(chat_documents(texts, rng, size * SHARES["chats"])),
        "numbers": list(number_documents(rng, size * SHARES["numbers"])),
    }
    documents = [document for group in groups.values() for document in group]
    rng.shuffle(documents)
    with open(out, "wb") as file:
        for document in documents:
            data = document.encode()
            file.write(struct.pack("<I", len(data)) + data)
    with open(out, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    sizes = {name: sum(len(d.encode()) for d in group) for name, group in groups.items()}
    total = sum(sizes.values())
    words = re.findall(r"\w+", "\n".join(documents))
    print(f"text: {total / 1e6:.2f} MB in {len(documents)} documents; " +
          ", ".join(f"{name} {100 * of / total:.0f} %" for name, of in sizes.items()) +
          f"; {len(words)} words, {len(set(words))} different; sha256 {digest[:16]}")


if __name__ == "__main__":
    main()
