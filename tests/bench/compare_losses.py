"""Trains what apus_bench_train wrote (save=FOLDER) with transformers and PEFT, on the same tokens, from the same
weights, with the same AdamW, and compares the losses step by step.

  apus_bench_train kind=lora size=7b layers=2 B=1 steps=20 warm=0 min_s=0 repeat=1 lr=1e-3 save=FOLDER out=FILE.jsonl
  python3 compare_losses.py FOLDER FILE.jsonl [steps=20] [device=cuda] [autocast=1] [masters=0]

Prints both rows of losses and whether they agree: each step within 2e-2 x max(|loss|, 0.1), the means over the steps
within 5e-3 x max(|mean|, 0.1). Returns 1 if they do not.

autocast=0 trains the peer in fp32. DPO needs that at its small rates: PEFT adds an adapter's bf16 output to the base
product that is rounded to bf16 already, so that what is below half a unit in the last place is lost whole, and the
peer learns nothing in its first steps. Here the sum is rounded once, and follows the peer's fp32 losses.

masters=1, where all is trained: the peer's weights and passes are in bf16, their masters and AdamW in fp32, and each
step writes the weights anew, as DeepSpeed's bf16 does and apus. Under autocast alone the peer's embedding, norms and
residual stream stay in fp32: it sees updates that are below a bf16 weight's last place.
"""
import json, os, sys

import torch

BETA = 0.1  # apus's DPO default


def load(folder, kind, device, mixed, masters):
    """The base, its adapter on it unless all of it is trained (then in fp32, unless its masters are apart)."""
    from transformers import AutoModelForCausalLM
    dtype = torch.bfloat16 if mixed and (kind != 'full' or masters) else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder + '/base', dtype=dtype, attn_implementation='sdpa')
    model.config.use_cache = False
    if kind != 'full':
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, folder + '/adapter', is_trainable=True)
    return model.to(device).train()


class Masters:
    """fp32 masters of 16-bit weights: they take the weights' gradients, and write the weights after a step."""

    def __init__(self, weights):
        self.weights = weights
        self.copies = [w.detach().float().requires_grad_() for w in weights]

    def take_gradients(self):
        for weight, copy in zip(self.weights, self.copies):
            copy.grad, weight.grad = weight.grad.float(), None

    def write_weights(self):
        with torch.no_grad():
            for weight, copy in zip(self.weights, self.copies):
                weight.copy_(copy)


def optimizer_of(trained, lr):
    """apus decays matrices alone."""
    groups = [dict(params=[p for p in trained if p.dim() >= 2], weight_decay=0.1),
              dict(params=[p for p in trained if p.dim() < 2], weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)


def token_log_probs(model, ids, begin):
    """Log-probabilities of ids[begin:], each predicted by what stands before it."""
    logits = model(input_ids=ids[None]).logits[0, begin - 1:-1].float()
    return logits.log_softmax(-1).gather(-1, ids[begin:, None])[:, 0]


def sft_loss(model, rows, context):
    """Backward of each row's share; the step's loss."""
    total = sum(len(row['input_ids']) - 1 for row in rows)
    loss = 0.0
    for row in rows:
        with context():
            part = -token_log_probs(model, row['input_ids'], 1).sum() / total
        part.backward()
        loss += part.item()
    return loss


def dpo_loss(model, rows, context):
    loss = 0.0
    for row in rows:
        begin = len(row['prompt'])
        sides = [torch.cat([row['prompt'], row[side]]) for side in ('chosen', 'rejected')]
        with context():
            with torch.no_grad(), model.disable_adapter():
                reference = [token_log_probs(model, ids, begin).sum() for ids in sides]
            policy = [token_log_probs(model, ids, begin).sum() for ids in sides]
        margin = (policy[0] - reference[0]) - (policy[1] - reference[1])
        part = -torch.nn.functional.logsigmoid(BETA * margin) / len(rows)
        part.backward()
        loss += part.item()
    return loss


def train(folder, steps, device, mixed, with_masters):
    with open(folder + '/tokens.json') as f:
        tokens = json.load(f)
    tensor = lambda row: {k: torch.tensor(v, device=device) for k, v in row.items()}
    rows, count = [tensor(row) for row in tokens['rows']], tokens['rows_a_step']
    model = load(folder, tokens['kind'], device, mixed, with_masters)
    trained = [p for p in model.parameters() if p.requires_grad]
    masters = Masters(trained) if with_masters else None
    if masters:
        trained = masters.copies
    optimizer = optimizer_of(trained, tokens['lr'])
    kind = device.split(':')[0]
    context = lambda: torch.autocast(kind, torch.bfloat16, enabled=mixed and not masters)
    loss_of = dpo_loss if tokens['kind'] == 'dpo' else sft_loss
    losses = []
    for step in range(steps):
        begin = step * count % len(rows)
        losses.append(loss_of(model, rows[begin:begin + count], context))
        if masters:
            masters.take_gradients()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if masters:
            masters.write_weights()
    return losses


def compare(apus, peer):
    steps = min(len(apus), len(peer))
    apus, peer = apus[:steps], peer[:steps]
    worst = max(abs(a - p) / max(abs(p), 0.1) for a, p in zip(apus, peer))
    mean_a, mean_p = sum(apus) / steps, sum(peer) / steps
    mean = abs(mean_a - mean_p) / max(abs(mean_p), 0.1)
    return dict(steps=steps, worst=round(worst, 6), mean=round(mean, 6), agree=worst <= 2e-2 and mean <= 5e-3,
                apus=[round(x, 6) for x in apus], peer=[round(x, 6) for x in peer])


def main(words):
    places = [w for w in words if '=' not in w]
    options = dict(steps='20', device='cuda', autocast='1', masters='0')
    options.update(w.split('=', 1) for w in words if '=' in w)
    unknown = set(options) - {'steps', 'device', 'autocast', 'masters'}
    if unknown:
        raise SystemExit(f'{sorted(unknown)}: known are steps, device, autocast, masters')
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    with open(places[1]) as f:
        lines = [json.loads(line) for line in f if line.startswith('{')]
    apus = [line for line in lines if line.get('losses') and 'save=' + places[0] in line['apus']][-1]
    peer = train(places[0], int(options['steps']), options['device'], options['autocast'] == '1', options['masters'] == '1')
    result = dict(case=apus['apus'], autocast=options['autocast'], masters=options['masters'], **compare(apus['losses'], peer))
    print(json.dumps(result), flush=True)
    return 0 if result['agree'] else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
