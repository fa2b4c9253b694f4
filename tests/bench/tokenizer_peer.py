"""Times Hugging Face tokenizers (and tiktoken, where it is installed) on the documents of mixed_text.py.

usage: tokenizer_peer.py TOKENIZER_JSON TEXT IDS_OUT RESULT_OUT

IDS_OUT: for each document its tokens' count and ids, little-endian 32 bits each. RESULT_OUT: a JSON object.
The environment decides the number of threads: TOKENIZERS_PARALLELISM, RAYON_NUM_THREADS.
"""
import array
import importlib.metadata
import json
import os
import struct
import sys
import time

import tokenizers

PASSES = 3
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")


def read_documents(path):
    with open(path, "rb") as file:
        data = file.read()
    documents, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        documents.append(data[at + 4:at + 4 + length].decode())
        at += 4 + length
    return documents


def best_seconds(work, passes=PASSES):
    best = float("inf")
    for _ in range(passes):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def write_ids(path, rows):
    with open(path, "wb") as file:
        for row in rows:
            file.write(struct.pack("<I", len(row)) + array.array("i", row).tobytes())


def tiktoken_of(tokenizer_json):
    import tiktoken
    spelt = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in spelt}
    letters.update({chr(256 + i): byte for i, byte in enumerate(b for b in range(256) if b not in spelt)})
    with open(tokenizer_json, encoding="utf-8") as file:
        vocabulary = json.load(file)["model"]["vocab"]
    ranks = {bytes(letters[c] for c in name): id for name, id in vocabulary.items()}
    return tiktoken.Encoding("qwen2.5", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def main():
    tokenizer_json, text, ids_out, result_out = sys.argv[1:]
    documents = read_documents(text)
    megabytes = sum(len(document.encode()) for document in documents) / 1e6
    load = best_seconds(lambda: tokenizers.Tokenizer.from_file(tokenizer_json))
    tokenizer = tokenizers.Tokenizer.from_file(tokenizer_json)
    result = {"versions": {"tokenizers": tokenizers.__version__}, "load_ms": load * 1e3, "mb_s": {}}
    if os.environ.get("TOKENIZERS_PARALLELISM") == "false":
        rows = [tokenizer.encode(document, add_special_tokens=False).ids for document in documents]
        write_ids(ids_out, rows)
        ways = {
            "encode": lambda: [tokenizer.encode(d, add_special_tokens=False) for d in documents],
            "encode_batch": lambda: tokenizer.encode_batch(documents, add_special_tokens=False),
            "encode_batch_fast": lambda: tokenizer.encode_batch_fast(documents, add_special_tokens=False),
        }
        try:
            other = tiktoken_of(tokenizer_json)
            result["versions"]["tiktoken"] = importlib.metadata.version("tiktoken")
            ways["tiktoken"] = lambda: [other.encode_ordinary(d) for d in documents]
            same = sum(other.encode_ordinary(d) == row for d, row in zip(documents, rows))
            result["tiktoken_equal_documents"] = same  # it does not normalise
        except ImportError:
            pass
    else:
        ways = {"encode_batch_fast": lambda: tokenizer.encode_batch_fast(documents, add_special_tokens=False)}
    for name, work in ways.items():
        result["mb_s"][name] = megabytes / best_seconds(work)
    with open(result_out, "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
