"""Loads an adapter that apus saved with PEFT and compares logits with those that apus wrote.

usage: check_peft.py BASE_FOLDER ADAPTER_FOLDER LOGITS.safetensors
See peft_check.md beside this file.
"""
import sys

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def compare(name, found, wanted):
    difference = (found - wanted).abs()
    allowed = 2e-5 + 1e-4 * wanted.abs()
    ok = found.shape == wanted.shape and bool((difference <= allowed).all())
    print(f"{name}: largest difference {difference.max():.2e}, largest logit {wanted.abs().max():.2f}: "
          f"{'equal' if ok else 'DIFFERENT'}")
    return ok


def main(base, adapter, logits_file):
    ours = load_file(logits_file)
    input_ids = ours["input_ids"][None]
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        base_logits = model(input_ids).logits[0]
        model = PeftModel.from_pretrained(model, adapter).eval()
        logits = model(input_ids).logits[0]
    results = [compare("base", ours["base_logits"], base_logits), compare("with adapter", ours["logits"], logits)]
    moved = float((logits - base_logits).abs().max())
    print(f"the adapter moves logits by up to {moved:.2e}")
    return 0 if all(results) and moved > 0 else 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
