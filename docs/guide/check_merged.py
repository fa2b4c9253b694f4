"""Loads a model that `apus merge` wrote with transformers, and compares it with base and adapter in PEFT.

usage: check_merged.py BASE_FOLDER ADAPTER_FOLDER MERGED_FOLDER
See docs/design/merge.md.
"""
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="eager").eval()


def largest_difference(found, wanted):
    return max(float((found[name].float() - value.float()).abs().max()) for name, value in wanted.items())


def main(base, adapter, merged_folder):
    merged, info = AutoModelForCausalLM.from_pretrained(merged_folder, dtype="auto", attn_implementation="eager",
                                                        output_loading_info=True)
    merged.eval()
    unloaded = {kind: sorted(names) for kind, names in info.items() if names}
    with_adapter = PeftModel.from_pretrained(load(base), adapter).eval()
    input_ids = (torch.arange(64) * 7 + 3).reshape(2, 32) % merged.config.vocab_size
    with torch.no_grad():
        wanted = with_adapter(input_ids=input_ids).logits.float()
        found = merged(input_ids=input_ids).logits.float()
        plain = load(base)(input_ids=input_ids).logits.float()
    logits = float((found - wanted).abs().max())
    weights = largest_difference(merged.state_dict(), with_adapter.merge_and_unload().state_dict())
    print(f"{merged.dtype}, {sum(p.numel() for p in merged.parameters())} parameters, not loaded: {unloaded or 'nothing'}")
    print(f"largest difference to PEFT: logits {logits:.2e} of {float(wanted.abs().max()):.2f}, weights {weights:.2e}")
    print(f"the adapter moves logits by up to {float((wanted - plain).abs().max()):.2e}")
    tolerance = 1e-5 if merged.dtype == torch.float32 else 2e-2
    ok = not unloaded and weights == 0 and logits <= tolerance * float(wanted.abs().max())
    print("equal" if ok else "DIFFERENT")
    return 0 if ok else 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
