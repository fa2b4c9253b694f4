"""The Python stack on several GPUs: full training of a Qwen2.5 shape under FSDP2 (torch.distributed.fsdp.fully_shard), fp32
parameters, passes in bf16, gradients reduced in fp32, fused AdamW, clipping at 1.0. One JSON line, of rank 0.

  python3 peers_fsdp.py peers=PATH_OF_peers.py [ranks=2] [size=7b] [B=2] [S=4096] [accumulation=1] [reshard=1] [attn=fa3] [gc=1]
          [liger=1] [compile=] [warm=3] [steps=8] [out=FILE.jsonl]

reshard=0 keeps parameters gathered between forward and backward, as ZeRO-2 does; 1 is full_shard. tok_s is of one GPU.
Where there is no GPU the ranks are on the CPU, over Gloo.
"""
import datetime, json, os, sys

from comm_peer import start_ranks
from peers_offload import load_peers, parse, shard

DEFAULTS = dict(ranks=2, size='7b', B=2, S=4096, accumulation=1, reshard=1, attn='fa3', gc=1, liger=1, compile='', warm=3, steps=8,
                min_s=0.0, kind='full')


def run(peers, case):
    import torch
    import torch.distributed as dist
    device = peers.dev()
    rank, ranks = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    if device == 'cuda':
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    dist.init_process_group('cpu:gloo,cuda:nccl' if device == 'cuda' else 'gloo', timeout=datetime.timedelta(minutes=5))
    model = peers.build(case)
    peers.liger(model, case)
    model.float()
    if case['gc']:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})
    model.train()
    if case['compile'] == 'layer':
        for layer in peers.layers(model):
            layer.compile()
    shard(model, peers, ranks, reshard_after_forward=bool(case['reshard']))
    if device == 'cuda':
        torch.cuda.empty_cache()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    vocabulary = peers.CFG[case['size']]['vocab_size']
    torch.manual_seed(rank)
    ids = torch.randint(0, vocabulary - 64, (case['B'], case['S']), device=device)

    def step():
        for index in range(case['accumulation']):
            ids.random_(0, vocabulary - 64)
            model.set_requires_gradient_sync(bool(case['reshard']) or index + 1 == case['accumulation'])
            loss = model(input_ids=ids, labels=ids).loss / case['accumulation']
            loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step.loss = loss.detach()

    result = peers.timed(step, case, case['B'] * case['S'] * case['accumulation'])
    result['loss'] = round(float(step.loss) * case['accumulation'], 3)
    peaks = [None] * ranks
    dist.all_gather_object(peaks, result.get('peak_GiB', 0))
    result['peaks_gib'] = peaks
    dist.destroy_process_group()
    return result


def main(words):
    case, files = parse(words, DEFAULTS, __doc__)
    if 'RANK' not in os.environ:
        return start_ranks(words, case['ranks'])
    line = dict(peer=' '.join(w for w in words if not w.startswith(('peers=', 'out='))), ranks=case['ranks'])
    try:
        line.update(run(load_peers(files['peers']), case))
    except Exception as error:  # a line in any case: the round goes on
        line['error'] = f'{type(error).__name__}: {error}'[:300]
    if os.environ['RANK'] == '0' or 'error' in line:
        print(json.dumps(line), flush=True)
        if 'out' in files:
            with open(files['out'], 'a') as file:
                file.write(json.dumps(line) + '\n')
    return 1 if 'error' in line else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
