"""apus and the Python stack in one run on one GPU, alternating: prints each alternation's ratio and the median.

  python3 peers_alternate.py ROW [ROW ...] [n=5] [min_s=6] [profile=1] [budget=540] [words="B=2 ..."]
          apus=PATH_OF_apus_bench_train peers=PATH_OF_peers.py out=FILE.jsonl

The peer is built and compiled once for each row and stays in its process: before apus runs, its weights and states
give their memory back, and get it again afterwards with fresh random values (speed does not depend on them).
An alternation is the peer for min_s seconds, then apus_bench_train in a process of its own.
"""
import gc, importlib.util, json, math, os, statistics, subprocess, sys, tempfile, time

# Each row: the peer's words (peers.py), apus's words (apus_bench_train).
ROWS = {
    'lora-7b': ('kind=lora B=4 attn=fa3 liger=lce compile=layer', 'kind=lora size=7b B=4'),
    'lora-7b-plain': ('kind=lora B=1 attn=cudnn adp=fp32', 'kind=lora size=7b B=4'),
    'full-7b': ('kind=full B=4 attn=fa3 gc=0 liger=lce compile=layer', 'kind=full size=7b B=4 optim=adamw_bf16'),
    'full-7b-plain': ('kind=full B=2 attn=fa3 gc=1 liger=1', 'kind=full size=7b B=4 optim=adamw_bf16'),
    'dpo-7b': ('kind=dpo size=7b attn=fa3 liger=0 adp=bf16 gc=0 compile=layer', 'kind=dpo size=7b'),
    'dpo-7b-plain': ('kind=dpo size=7b attn=sdpa liger=0 adp=fp32 gc=1', 'kind=dpo size=7b'),
    'dpo-7b-cached': ('kind=dpo size=7b attn=fa3 liger=0 adp=bf16 gc=0 compile=layer pre=1',
                      'kind=dpo size=7b reference=cached'),
    'dpo-14b': ('kind=dpo size=14b attn=fa3 liger=0 adp=bf16 gc=0 compile=layer', 'kind=dpo size=14b'),
    'dpo-14b-plain': ('kind=dpo size=14b attn=sdpa liger=0 adp=fp32 gc=1', 'kind=dpo size=14b'),
    'dpo-14b-cached': ('kind=dpo size=14b attn=fa3 liger=0 adp=bf16 gc=0 compile=layer pre=1',
                       'kind=dpo size=14b reference=cached'),
    'full-0.5b': ('kind=full size=0.5b B=4 attn=cudnn gc=0 liger=lce compile=layer', 'kind=full size=0.5b B=4'),
    'full-0.5b-eager': ('kind=full size=0.5b B=4 attn=cudnn gc=0', 'kind=full size=0.5b B=4'),
    'full-0.5b-plain': ('kind=full size=0.5b B=4 attn=cudnn gc=0 liger=0', 'kind=full size=0.5b B=4'),
    'tiny': ('kind=lora size=tiny B=2 S=64 liger=0', 'kind=lora size=tiny B=2 S=64 device=cpu dtype=fp32 min_s=0'),
    'tiny-dpo': ('kind=dpo size=tiny S=64 liger=0 adp=bf16',
                 'kind=dpo size=tiny S=64 device=cpu dtype=fp32 min_s=0'),
}
PARKED_BYTES = 1 << 20  # smaller tensors stay


class Finished(Exception):
    """Enough alternations: leaves peers.py's own loop."""


def load_peers(path):
    spec = importlib.util.spec_from_file_location('peers', path)
    module = importlib.util.module_from_spec(spec)
    sys.modules['peers'] = module
    spec.loader.exec_module(module)
    return module


class Parking:
    """Takes the memory of a model's and an optimizer's tensors, and gives it back with random values."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.sizes = model, optimizer, []

    def tensors(self):
        import torch
        seen = set()
        states = [t for s in self.optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
        for tensor in list(self.model.parameters()) + states:
            storage = tensor.untyped_storage()
            if storage.nbytes() >= PARKED_BYTES and storage._cdata not in seen:
                seen.add(storage._cdata)
                yield tensor

    def park(self):
        import torch
        for p in self.model.parameters():
            p.grad = None
        self.sizes = [(t, t.untyped_storage().nbytes()) for t in self.tensors()]
        for tensor, _ in self.sizes:
            tensor.untyped_storage().resize_(0)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def unpark(self):
        import torch
        parameters = {id(p) for p in self.model.parameters()}
        with torch.no_grad():
            for tensor, size in self.sizes:
                tensor.untyped_storage().resize_(size)
                if id(tensor) not in parameters:
                    tensor.zero_()
                elif tensor.dim() == 1:
                    tensor.fill_(1.0)
                else:
                    tensor.normal_(0.0, 0.02)


class Alternation:
    """The alternations of one row: what the peer's loop calls, and the record."""

    def __init__(self, row, options, peers):
        self.row, self.options, self.peers = row, options, peers
        self.records = []

    def run_apus(self):
        words = ROWS[self.row][1].split() + self.options['words'].split()
        if self.options['profile'] and len(self.records) + 1 == self.options['n']:
            words.append('profile=1')
        environment = {k: v for k, v in os.environ.items() if k != 'PYTORCH_CUDA_ALLOC_CONF'}
        command = [self.options['apus'], *words, 'out=' + self.options['out'] + '.apus']
        left = max(self.options['end'] - time.time(), 5)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=min(left, 150))
        except subprocess.TimeoutExpired:
            return dict(error='time limit')
        lines = [l for l in done.stdout.splitlines() if l.startswith('{')]
        if not lines:
            return dict(error=(done.stderr or done.stdout)[-500:], rc=done.returncode)
        return json.loads(lines[-1])

    def round(self, peer, parking):
        parking.park()
        apus = self.run_apus()
        parking.unpark()
        record = dict(row=self.row, alternation=len(self.records) + 1, apus=apus, peer=peer)
        if apus.get('tok_s') and peer.get('tok_s'):
            record['ratio'] = round(apus['tok_s'] / peer['tok_s'], 4)
        self.records.append(record)
        with open(self.options['out'], 'a') as f:
            f.write(json.dumps(record) + '\n')
        print(self.row, record['alternation'], 'apus', apus.get('tok_s', apus.get('error')), apus.get('watts'), 'W',
              'peer', peer.get('tok_s'), peer.get('W'), 'W', 'ratio', record.get('ratio'), flush=True)
        spent = time.time() - self.options['start']
        per_round = spent / len(self.records)
        if len(self.records) >= self.options['n'] or time.time() + 0.7 * per_round > self.options['end']:
            raise Finished

    def summary(self):
        ratios = [r['ratio'] for r in self.records if 'ratio' in r]
        if not ratios:
            return dict(row=self.row, error='no alternation has both figures')
        middle = lambda who: statistics.median(r[who]['tok_s'] for r in self.records if 'ratio' in r)
        return dict(row=self.row, ratios=ratios, median=round(statistics.median(ratios), 4),
                    apus_tok_s=middle('apus'), peer_tok_s=middle('peer'),
                    apus_peak_gib=max(r['apus'].get('peak_gib', 0) for r in self.records),
                    peer_peak_gib=max(r['peer'].get('peak_GiB', 0) for r in self.records))


def measured(peers, tokens, seconds, steps, begin, end):
    """One figure of the peer, as peers.timed gives it."""
    import torch
    figure = dict(tok_s=round(tokens * steps / seconds), ms=round(seconds / steps * 1e3, 1), n=steps)
    if torch.cuda.is_available():
        figure.update(peak_GiB=round(torch.cuda.max_memory_allocated() / 2**30, 1), **peers.smi_stats(begin, end))
    return figure


def alternating_timed(alternation, peers):
    """Stands in for peers.timed: same warm-up and clock, many times, with apus between."""
    def timed(step, c, tokens):
        import torch
        names = dict(zip(step.__code__.co_freevars, (cell.cell_contents for cell in step.__closure__)))
        parking = Parking(names['m'], names['opt'])
        gc.collect()
        gc.freeze()
        for _ in range(c['warm']):
            begin = time.time()
            step()
            peers.sync()
        while True:
            duration = time.time() - begin
            n = max(c['steps'], math.ceil(c['min_s'] / duration)) if peers.dev() == 'cuda' else 2
            if peers.dev() == 'cuda':
                torch.cuda.reset_peak_memory_stats()
            start = time.time()
            for _ in range(n):
                step()
            peers.sync()
            stop = time.time()
            figure = measured(peers, tokens, stop - start, n, start, stop)
            figure['loss'] = round(float(step.loss), 3)
            if alternation.options['profile'] and len(alternation.records) + 1 == alternation.options['n']:
                figure['prof'] = peers.profile(step)
            alternation.round(figure, parking)
            for _ in range(2):
                begin = time.time()
                step()
                peers.sync()
    return timed


def alternating_train(alternation, peers, c):
    """Stands in for DPOTrainer.train: the same training with a callback that counts, parks and runs apus."""
    import torch
    from transformers import Trainer, TrainerCallback
    tokens = c['B'] * (2 * c['S'] - c.get('short', 0))

    class Watch(TrainerCallback):
        warm, steps, start, began = c['warm'], 0, 0.0, 0.0

        def on_step_end(self, args, state, control, **given):
            peers.sync()
            now = time.time()
            if self.warm > 0:
                self.warm -= 1
                if self.warm == 0:
                    gc.collect()
                    gc.freeze()
                    if peers.dev() == 'cuda':
                        torch.cuda.reset_peak_memory_stats()
                    self.steps, self.start = 0, time.time()
                return
            self.steps += 1
            if self.steps < c['steps_a_round'] or (peers.dev() == 'cuda' and now - self.start < c['min_s']):
                return
            figure = measured(peers, tokens, now - self.start, self.steps, self.start, now)
            alternation.round(figure, Parking(given['model'], given['optimizer']))
            self.warm = 2

    def train(self, *arguments, **words):
        self.add_callback(Watch())
        return Trainer.train(self, *arguments, **words)
    return train


def run_row(row, options):
    peers = load_peers(options['peers'])
    os.environ['SMI_LOG'] = options['smi']
    c = peers.parse(ROWS[row][0].split())
    c['min_s'] = options['min_s']
    alternation = Alternation(row, options, peers)
    import torch
    if peers.dev() == 'cuda':
        torch.zeros(1, device='cuda')
    torch._dynamo.config.cache_size_limit = 64
    torch._dynamo.config.accumulated_cache_size_limit = 512
    if c['kind'] == 'dpo':
        import datasets.arrow_dataset
        import trl.trainer.dpo_trainer as D
        datasets.arrow_dataset.generate_fingerprint = lambda *given, **words: 'x'  # some pyarrow do not pickle
        c['steps_a_round'] = c['steps']
        c['steps'] = 14 * options['n']
        D.DPOTrainer.train = alternating_train(alternation, peers, c)
    else:
        peers.timed = alternating_timed(alternation, peers)
    try:
        peers.KIND[c['kind']](c)
    except Finished:
        pass
    except Exception as error:
        import traceback
        traceback.print_exc()
        print(row, 'peer failed:', type(error).__name__, str(error)[:300], flush=True)
    summary = alternation.summary()
    with open(options['out'], 'a') as f:
        f.write(json.dumps(summary) + '\n')
    print(json.dumps(summary), flush=True)


def warm_imports():
    """What rows share; nothing here may touch CUDA, as rows are forked."""
    import importlib
    for name in ('torch', 'transformers', 'transformers.models.qwen2.modeling_qwen2', 'peft', 'datasets',
                 'liger_kernel.transformers', 'trl.trainer.dpo_trainer', 'torch._dynamo'):
        try:
            importlib.import_module(name)
        except Exception as error:
            print('import', name, type(error).__name__, str(error)[:200], flush=True)


def main(words):
    options = dict(n='5', min_s='6', profile='0', budget='540', words='', apus='', peers='', out='alternate.jsonl')
    rows = [w for w in words if '=' not in w]
    for word in words:
        if '=' in word:
            key, value = word.split('=', 1)
            if key not in options:
                sys.exit('unknown option %s; known: %s' % (key, ' '.join(options)))
            options[key] = value
    unknown = [row for row in rows if row not in ROWS]
    if unknown or not rows or not options['apus'] or not options['peers']:
        sys.exit('unknown rows %s; known: %s\n%s' % (unknown, ' '.join(ROWS), __doc__))
    options.update(n=int(options['n']), min_s=float(options['min_s']), profile=int(options['profile']))
    end = time.time() + float(options['budget'])
    options['smi'] = tempfile.mktemp()
    os.environ.setdefault('PYTORCH_CUDA_ALLOC_CONF', 'expandable_segments:True')
    os.environ.setdefault('PYTORCH_NVML_BASED_CUDA_CHECK', '1')
    os.environ.setdefault('HF_HUB_OFFLINE', '1')
    os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
    meter = subprocess.Popen([sys.executable, options['peers'], 'smi', options['smi']], stderr=subprocess.DEVNULL)
    try:
        warm_imports()
        for place, row in enumerate(rows):
            left = end - time.time()
            if left < 40:
                print(row, 'skipped: no time left', flush=True)
                continue
            options.update(start=time.time(), end=time.time() + left / (len(rows) - place))
            child = os.fork()
            if child == 0:
                try:
                    run_row(row, options)
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            os.waitpid(child, 0)
    finally:
        meter.kill()


if __name__ == '__main__':
    main(sys.argv[1:])
