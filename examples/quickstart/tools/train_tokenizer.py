#!/usr/bin/env python3
"""Trains the byte-level BPE tokenizer of the quickstart's base model on corpus.jsonl.

The pipeline is Qwen2.5's: NFC, Qwen2's split rule, bytes, merges; the added tokens come after the vocabulary.
Only the corpus is read, never the preference files, and beside it the words that the chat template adds to
every row. A token is at most MAX_TOKEN_BYTES long, so that no stock phrase becomes one token.

    train_tokenizer.py [--corpus FILE] [--base DIR] [--vocab-size N] [--template FILE.jinja] [--report]

Needs Python 3.9 and the PyPI package tokenizers (0.23.3 made the committed files; same input, same bytes).
The result is committed: the quickstart itself never runs this. Without --template the chat template of the
present tokenizer_config.json is kept. --report prints token counts and writes nothing.
"""
import argparse
import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MAX_TOKEN_BYTES = 12
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


def read_jsonl(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").split("\n") if line]


def render(user, assistant):
    """One exchange as the chat template writes it (the template itself is applied by the library)."""
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
            f"<|im_start|>assistant\n{assistant}<|im_end|>\n")


def training_texts(rows):
    for row in rows:
        yield f"system\n{SYSTEM}"
        for message in row["messages"]:
            yield f"{message['role']}\n"
            yield message["content"]


def train(rows, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    as_bytes = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    tokenizer.post_processor = processors.ByteLevel(**as_bytes)
    tokenizer.decoder = decoders.ByteLevel(**as_bytes)
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - len(SPECIAL), show_progress=False, min_frequency=2,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  max_token_length=MAX_TOKEN_BYTES)
    tokenizer.train_from_iterator(training_texts(rows), trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    return tokenizer


def config(tokenizer, template):
    ids = {text: str(tokenizer.token_to_id(text)) for text in SPECIAL}
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_bos_token": False, "add_prefix_space": False,
        "added_tokens_decoder": {ids[text]: {"content": text, **flags} for text in SPECIAL},
        "additional_special_tokens": SPECIAL[1:], "bos_token": None, "chat_template": template,
        "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "model_max_length": 512, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}


def report(tokenizer):
    """Token counts of whole rows, the template's part included."""
    def line(name, counts):
        counts.sort()
        marks = ", ".join(f"p{p} {counts[len(counts) * p // 100]}" for p in (5, 50, 95, 99))
        print(f"{name}: {len(counts)} rows, {sum(counts)} tokens, {marks}, max {counts[-1]}")

    def count(text):
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    print(f"vocabulary {tokenizer.get_vocab_size()}")
    line("corpus", [count(render(*(m["content"] for m in row["messages"])))
                    for row in read_jsonl(DATA / "corpus.jsonl")])
    for name in ("train", "eval"):
        rows = read_jsonl(DATA / f"preference.{name}.jsonl")
        for key in ("chosen", "rejected"):
            line(f"{name}, prompt and {key}", [count(render(row["prompt"], row[key])) for row in rows])
        lengths = [(count(row["chosen"]), count(row["rejected"])) for row in rows]
        longer = sum(0.5 if a == b else float(a > b) for a, b in lengths) / len(rows)
        print(f"{name}: chosen has more tokens than rejected in {longer:.3f} of the pairs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, default=DATA / "corpus.jsonl")
    parser.add_argument("--base", type=Path, default=HERE.parent / "base")
    parser.add_argument("--vocab-size", type=int, default=3000)
    parser.add_argument("--template", type=Path)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    config_path = options.base / "tokenizer_config.json"
    if options.report:
        report(Tokenizer.from_file(str(options.base / "tokenizer.json")))
        return 0
    template = (options.template.read_text(encoding="utf-8") if options.template
                else json.loads(config_path.read_text(encoding="utf-8"))["chat_template"])
    tokenizer = train(read_jsonl(options.corpus), options.vocab_size)
    options.base.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.base / "tokenizer.json"), pretty=False)
    text = json.dumps(config(tokenizer, template), ensure_ascii=False, indent=2)
    config_path.write_text(text + "\n", encoding="utf-8")
    report(tokenizer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
