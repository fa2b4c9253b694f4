"""What apus_bench_comm measures, through torch.distributed: NCCL between GPUs, Gloo on the CPU.

  python3 comm_peer.py [ranks=2] [device=cuda] [dtype=fp32] [ops=all_reduce,send_recv] [from=1M] [to=1G] [step=2]
          [warm=5] [iterations=20] [repeat=3] [timeout=60] [out=FILE]

The same words, contents, sizes, samples and formulas; one JSON line a case, of rank 0. Returns 1 if contents were wrong.
"""
import datetime, json, os, socket, subprocess, sys, time

OPS = ('all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'all_to_all', 'send_recv')
DEFAULTS = dict(ranks='2', device='cuda', dtype='fp32', ops='', to='1G', step='2', warm='5', iterations='20', repeat='3',
                timeout='60', out='', **{'from': '1M'})
UNITS = dict(K=10, M=20, G=30)


def parse(words, defaults=DEFAULTS):
    options = dict(defaults)
    for word in words:
        key, _, value = word.partition('=')
        if key not in options:
            sys.exit(f'{word}: known are {", ".join(options)}')
        options[key] = value
    return options


def parse_bytes(text):
    return int(text[:-1]) << UNITS[text[-1]] if text[-1] in UNITS else int(text)


def bus_factor(op, ranks):
    if op == 'all_reduce':
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ('all_gather', 'reduce_scatter', 'all_to_all') else 1.0


def start_ranks(words, ranks):
    """This script once a rank; the first failure's code. The others are ended with it."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    place = dict(os.environ, MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), WORLD_SIZE=str(ranks))
    running = [subprocess.Popen([sys.executable, os.path.abspath(sys.argv[0]), *words], env=dict(place, RANK=str(r), LOCAL_RANK=str(r)))
               for r in range(ranks)]
    code = 0
    while running and not code:
        time.sleep(0.05)
        for child in list(running):
            if child.poll() is not None:
                running.remove(child)
                code = code or child.returncode
    for child in running:
        child.kill()
    return code


def pattern(torch, rank, begin, count, like):
    index = torch.arange(begin, begin + count, device=like['device'])
    return ((index * 7 + index // 1009 + 5 * rank) % 31).to(like['dtype'])


class Case:
    def __init__(self, torch, op, size, like, rank, ranks):
        self.torch, self.op, self.like, self.rank, self.ranks = torch, op, like, rank, ranks
        unit = 16 * ranks
        itemsize = torch.empty((), dtype=like['dtype']).itemsize
        self.count = max(unit, size // itemsize // unit * unit)
        self.bytes = self.count * itemsize
        self.part = self.count // ranks
        self.input = torch.empty(self.part if op == 'all_gather' else self.count, **like)
        in_place = op in ('all_reduce', 'broadcast')
        self.output = None if in_place else torch.empty(self.part if op == 'reduce_scatter' else self.count, **like)

    def refresh(self):
        self.input.copy_(self.of(self.rank, 0, self.input.numel()))
        if self.output is not None:
            self.output.fill_(-1)

    def of(self, rank, begin, count):
        return pattern(self.torch, rank, begin, count, self.like)

    def run(self):
        import torch.distributed as dist
        following, before = (self.rank + 1) % self.ranks, (self.rank + self.ranks - 1) % self.ranks
        if self.op == 'all_reduce':
            dist.all_reduce(self.input)
        elif self.op == 'all_gather':
            dist.all_gather_into_tensor(self.output, self.input)
        elif self.op == 'reduce_scatter':
            dist.reduce_scatter_tensor(self.output, self.input)
        elif self.op == 'broadcast':
            dist.broadcast(self.input, self.ranks - 1)
        elif self.op == 'all_to_all':
            dist.all_to_all_single(self.output, self.input)
        else:
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, self.input, following),
                                                dist.P2POp(dist.irecv, self.output, before)]):
                work.wait()

    def expected(self):
        everyone = range(self.ranks)
        if self.op == 'all_reduce':
            return sum(self.of(r, 0, self.count) for r in everyone)
        if self.op == 'reduce_scatter':
            return sum(self.of(r, self.rank * self.part, self.part) for r in everyone)
        if self.op == 'broadcast':
            return self.of(self.ranks - 1, 0, self.count)
        if self.op == 'send_recv':
            return self.of((self.rank + self.ranks - 1) % self.ranks, 0, self.count)
        begin = self.rank * self.part if self.op == 'all_to_all' else 0
        return self.torch.cat([self.of(r, begin, self.part) for r in everyone])

    def is_right(self):
        return bool(self.torch.equal(self.input if self.output is None else self.output, self.expected()))


class Bench:
    def __init__(self, options):
        import torch
        import torch.distributed as dist
        self.torch, self.dist, self.options = torch, dist, options
        self.rank, self.ranks = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
        self.cuda = options['device'] == 'cuda'
        if self.cuda:
            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        device = f'cuda:{os.environ["LOCAL_RANK"]}' if self.cuda else 'cpu'
        dist.init_process_group('cpu:gloo,cuda:nccl' if self.cuda else 'gloo',
                                timeout=datetime.timedelta(seconds=int(options['timeout'])))
        self.like = dict(device=device, dtype=torch.bfloat16 if options['dtype'] == 'bf16' else torch.float32)
        self.figures = dist.new_group(backend='gloo')

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def most(self, value):
        one = self.torch.tensor([value], dtype=self.torch.float64)
        self.dist.all_reduce(one, self.dist.ReduceOp.MAX, group=self.figures)
        return one.item()

    def time(self, run, prepare):
        samples = []
        iterations = int(self.options['iterations'])
        for _ in range(max(1, int(self.options['repeat']))):
            prepare()
            for _ in range(int(self.options['warm'])):
                run()
            self.wait()
            self.dist.barrier(group=self.figures)
            start = time.perf_counter()
            for _ in range(iterations):
                run()
            self.wait()
            samples.append(self.most(time.perf_counter() - start) / iterations)
        return sorted(samples)[len(samples) // 2]

    def measure(self, op, size):
        case = Case(self.torch, op, size, self.like, self.rank, self.ranks)
        case.refresh()
        case.run()
        self.wait()
        right = self.most(0.0 if case.is_right() else 1.0) == 0
        seconds = self.time(case.run, case.refresh)
        rate = case.bytes / seconds / 1e9
        self.print(op, bytes=case.bytes, dtype=self.options['dtype'], us=seconds * 1e6, alg_gb_s=rate,
                   bus_gb_s=rate * bus_factor(op, self.ranks), verified=right)
        return right

    def barrier(self):
        self.dist.barrier()
        self.wait()

    def print(self, op, **figures):
        if self.rank:
            return
        line = json.dumps(dict(comm='torch', device=self.options['device'], ranks=self.ranks, op=op, **figures))
        if self.options['out']:
            with open(self.options['out'], 'a') as file:
                file.write(line + '\n')
        print(line, flush=True)

    def run(self):
        right = True
        wanted = self.options['ops'].split(',') if self.options['ops'] else OPS
        for op in OPS:
            if op not in wanted or (op == 'send_recv' and self.ranks == 1):
                continue
            size = parse_bytes(self.options['from'])
            while size <= parse_bytes(self.options['to']):
                right = self.measure(op, size) and right
                size *= max(2, int(self.options['step']))
        self.print('barrier', bytes=0, us=1e6 * self.time(self.barrier, lambda: None))
        self.dist.destroy_process_group()
        return right


def main(words):
    options = parse(words)
    if 'RANK' not in os.environ:
        return start_ranks(words, int(options['ranks']))
    return 0 if Bench(options).run() else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
