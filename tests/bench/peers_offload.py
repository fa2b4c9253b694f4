"""The Python stack with its states on the host, on one GPU: transformers under FSDP2 with CPUOffloadPolicy, fused AdamW on the
CPU, clipping at 1.0. One JSON line.

  python3 peers_offload.py peers=PATH_OF_peers.py [size=3b] [B=4] [S=4096] [accumulation=16] [offload=1] [update=1] [dtype=fp32]
          [attn=fa3] [gc=1] [liger=1] [warm=2] [steps=3] [out=FILE.jsonl]

FSDP2 keeps parameters, gradients and optimizer states on the host, which is zero3_offload; it has no way to keep
parameters on the device (zero2_offload). dtype: of the parameters on the host and of what AdamW keeps for them; passes
are in bf16, gradients reduced in fp32. offload=0: all of it on the GPU. update=0: steps end before clipping.
DeepSpeed itself is not compared: its CPU Adam is compiled on the machine, which needs a compiler and CUDA's there.
"""
import importlib.util, json, sys, tempfile

DEFAULTS = dict(size='3b', B=4, S=4096, accumulation=16, offload=1, update=1, dtype='fp32', attn='fa3', gc=1, liger=1, warm=2,
                steps=3, min_s=0.0, compile='', kind='full')
QWEN_3B = dict(hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
               vocab_size=151936, tie_word_embeddings=True)


def load_peers(path):
    spec = importlib.util.spec_from_file_location('peers', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.CFG['3b'] = QWEN_3B
    return module


def parse(words, defaults, usage):
    """The case that the words make of the defaults, and the files that they name."""
    case, files = dict(defaults), {}
    for word in words:
        key, _, text = word.partition('=')
        if key in ('peers', 'out'):
            files[key] = text
        elif key in case:
            case[key] = type(case[key])(text)
        else:
            sys.exit(f'{key}: known are peers, out, {", ".join(case)}')
    if 'peers' not in files:
        sys.exit(usage)
    return case, files


def shard(model, peers, ranks, **options):
    """One FSDP unit a layer and one for the rest, as the documentation of FSDP2 has it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    import torch
    options.update(mesh=init_device_mesh(peers.dev(), (ranks,)),
                   mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    for layer in peers.layers(model):
        fully_shard(layer, **options)
    fully_shard(model, **options)


def run(peers, case):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy
    device = peers.dev()
    store = tempfile.mktemp()
    dist.init_process_group('cpu:gloo,cuda:nccl' if device == 'cuda' else 'gloo', init_method='file://' + store, rank=0,
                            world_size=1)
    model = peers.build(case)
    peers.liger(model, case)
    if case['dtype'] == 'fp32':
        model.float()
    if case['gc']:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})
    model.train()
    shard(model, peers, 1, offload_policy=CPUOffloadPolicy() if case['offload'] else OffloadPolicy())
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    vocabulary = peers.CFG[case['size']]['vocab_size']
    ids = torch.randint(0, vocabulary - 64, (case['B'], case['S']), device=device)

    def step():
        for _ in range(case['accumulation']):
            ids.random_(0, vocabulary - 64)
            loss = model(input_ids=ids, labels=ids).loss / case['accumulation']
            loss.backward()
        if case['update']:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        optimizer.zero_grad()
        step.loss = loss.detach()

    result = peers.timed(step, case, case['B'] * case['S'] * case['accumulation'])
    result['loss'] = round(float(step.loss) * case['accumulation'], 3)
    dist.destroy_process_group()
    return result


def main(words):
    case, files = parse(words, DEFAULTS, __doc__)
    line = dict(peer=' '.join(w for w in words if not w.startswith(('peers=', 'out='))))
    try:
        line.update(run(load_peers(files['peers']), case))
    except Exception as error:  # a line in any case: the round goes on
        line['error'] = f'{type(error).__name__}: {error}'[:300]
    print(json.dumps(line), flush=True)
    if 'out' in files:
        with open(files['out'], 'a') as file:
            file.write(json.dumps(line) + '\n')


if __name__ == '__main__':
    main(sys.argv[1:])
