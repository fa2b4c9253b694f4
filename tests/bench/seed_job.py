"""The seed job (Qwen2.5-14B shapes, DPO with LoRA, four ranks) on random weights: makes its model and data, runs the command, and
prints what each run reached.

  python3 seed_job.py model OUT [size=14b]          a model folder in Hugging Face layout, made on the GPU where there is one
  python3 seed_job.py data OUT.jsonl MODEL [S=4096] [rows=1920]   pairs: one in 16 of S tokens, the others shorter
  python3 seed_job.py run KEY=VALUE ...             one run; one JSON line, and a row of the table
  python3 seed_job.py resume KEY=VALUE ...          kills a rank with SIGKILL, and runs the same command again
  python3 seed_job.py hold GIB                      fills each GPU until GIB are free, until its standard input closes

KEY=VALUE of run and resume: apus=PROGRAM model=DIR data=FILE work=DIR [ranks=4] [policy=zero2|zero3|fsdp] [steps=30] [S=4096]
[accumulation=16] [cap_gib=38] [recompute=auto|true|false] [backend=nccl|gloo] [save_steps=4] [out=FILE.jsonl]

The command is that of people who come from ms-swift; --max_steps, --logging_steps 1 and, for resume, --save_steps are put over it.
cap_gib: a process beside the run holds the rest of each GPU, so that a rank sees a card with so much free memory.
"""
import json, os, re, shutil, signal, subprocess, sys, threading, time

from comm_peer import parse

SIZES = {
    '14b': dict(hidden_size=5120, intermediate_size=13824, num_hidden_layers=48, num_attention_heads=40, num_key_value_heads=8,
                vocab_size=152064, max_position_embeddings=32768),
    '0.5b': dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                 vocab_size=151936, max_position_embeddings=32768),
    'tiny': dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=3072, max_position_embeddings=4096),
}
SHARD_BYTES = 5_000_000_000
ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), '../..'))
TOKENIZER = os.path.join(ROOT, 'examples/quickstart/base')


# ---- model and data
def shapes(config):
    """(name, shape) of every parameter, in the order of the files."""
    d, f, head = config['hidden_size'], config['intermediate_size'], config['hidden_size'] // config['num_attention_heads']
    q, kv = config['num_attention_heads'] * head, config['num_key_value_heads'] * head
    yield 'model.embed_tokens.weight', (config['vocab_size'], d)
    for i in range(config['num_hidden_layers']):
        layer = f'model.layers.{i}.'
        for name, rows in (('q', q), ('k', kv), ('v', kv)):
            yield layer + f'self_attn.{name}_proj.weight', (rows, d)
            yield layer + f'self_attn.{name}_proj.bias', (rows,)
        yield layer + 'self_attn.o_proj.weight', (d, q)
        yield layer + 'mlp.gate_proj.weight', (f, d)
        yield layer + 'mlp.up_proj.weight', (f, d)
        yield layer + 'mlp.down_proj.weight', (d, f)
        yield layer + 'input_layernorm.weight', (d,)
        yield layer + 'post_attention_layernorm.weight', (d,)
    yield 'model.norm.weight', (d,)
    yield 'lm_head.weight', (config['vocab_size'], d)


def shards(sizes, limit):
    """Names cut into files of at most `limit` bytes, or of one tensor."""
    files, held = [[]], 0
    for name, size in sizes:
        if files[-1] and held + size > limit:
            files.append([])
            held = 0
        files[-1].append(name)
        held += size
    return files


def make_model(folder, size):
    import torch
    from safetensors.torch import save_file
    config = dict(SIZES[size], architectures=['Qwen2ForCausalLM'], model_type='qwen2', hidden_act='silu', rms_norm_eps=1e-6,
                  rope_theta=1e6, tie_word_embeddings=False, torch_dtype='bfloat16', use_cache=True, use_sliding_window=False,
                  attention_dropout=0.0, initializer_range=0.02)
    os.makedirs(folder, exist_ok=True)
    for name in ('tokenizer.json', 'tokenizer_config.json', 'generation_config.json'):
        shutil.copy(os.path.join(TOKENIZER, name), folder)
    with open(os.path.join(folder, 'config.json'), 'w') as file:
        json.dump(config, file, indent=1)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    generator = torch.Generator(device).manual_seed(0)
    wanted = dict(shapes(config))
    count = lambda shape: 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    files = shards([(name, count(shape)) for name, shape in wanted.items()], SHARD_BYTES)
    places = {}
    for index, names in enumerate(files, 1):
        path = f'model-{index:05d}-of-{len(files):05d}.safetensors'
        tensors = {}
        for name in names:
            made = torch.empty(wanted[name], dtype=torch.bfloat16, device=device)
            if name.endswith('bias'):
                made.zero_()
            elif len(wanted[name]) == 1:
                made.fill_(1.0)
            else:
                made.normal_(0, 0.02, generator=generator)
            tensors[name] = made.cpu()
            places[name] = path
        save_file(tensors, os.path.join(folder, path), metadata=dict(format='pt'))
    total = sum(count(shape) for shape in wanted.values())
    with open(os.path.join(folder, 'model.safetensors.index.json'), 'w') as file:
        json.dump(dict(metadata=dict(total_size=total), weight_map=places), file)
    return total


def text_of(pieces, tokens, random):
    """Pieces that have together at most so many tokens, at least one piece."""
    words, left = [], tokens
    while True:
        text, size = random.choice(pieces)
        if words and size > left:
            return ' '.join(words)
        words.append(text)
        left -= size


def make_data(path, model, length, rows):
    """The prompt is a quarter of a row, both answers fill what is left but for the template's tokens."""
    import random
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(model, 'tokenizer.json'))
    with open(os.path.join(ROOT, 'examples/quickstart/data/corpus.jsonl')) as file:
        words = sorted({w for line in file for w in re.findall(r'[A-Za-z]+', ' '.join(map(str, json.loads(line).values())))})
    dice = random.Random(0)
    pieces = [(w, len(tokenizer.encode(' ' + w, add_special_tokens=False).ids)) for w in dice.sample(words, min(400, len(words)))]
    slack = min(64, length // 4)
    with open(path, 'w') as file:
        for row in range(rows):
            tokens = length if row % 16 == 0 else dice.randint(min(128, length // 2), length // 2)
            prompt, answer = max(4, tokens // 4 - slack // 2), max(4, tokens - tokens // 4 - slack // 2)
            file.write(json.dumps(dict(prompt=text_of(pieces, prompt, dice), chosen=text_of(pieces, answer, dice),
                                       rejected=text_of(pieces, answer, dice))) + '\n')


# ---- the cap
def hold(gib):
    import torch
    kept = []
    for index in range(torch.cuda.device_count()):
        torch.cuda.set_device(index)
        torch.zeros(1, device='cuda')
        free = torch.cuda.mem_get_info()[0] - int(gib * 2**30)
        if free > 0:
            kept.append(torch.empty(free // (2 << 20) * (2 << 20), dtype=torch.uint8, device='cuda'))
        print('free', index, torch.cuda.mem_get_info()[0], flush=True)
    print('held', flush=True)
    sys.stdin.read()


class Cap:
    """Holds what a rank is not to have, while it is open."""

    def __init__(self, gib):
        self.gib, self.process = gib, None

    def __enter__(self):
        if self.gib > 0:
            self.process = subprocess.Popen([sys.executable, __file__, 'hold', str(self.gib)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True)
            while self.process.stdout.readline().strip() not in ('held', ''):
                pass
            if self.process.poll() is not None:
                raise RuntimeError('the process that caps the GPUs has ended')
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


class CardWatch(threading.Thread):
    """The most that nvidia-smi shows as used on each card, beyond what is used when it starts."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before, self.most, self.ends = self.read(), [], threading.Event()
        self.start()

    def read(self):
        try:
            out = subprocess.run(['nvidia-smi', '--query-gpu=memory.used', '--format=csv,noheader,nounits'], capture_output=True,
                                 text=True).stdout
            return [int(line) for line in out.split()]
        except (OSError, ValueError):
            return []

    def run(self):
        while self.before and not self.ends.wait(0.5):
            used = [now - before for now, before in zip(self.read(), self.before)]
            self.most = [max(pair) for pair in zip(used, self.most or used)]

    def gib(self):
        self.ends.set()
        self.join()
        return [round(mib / 1024, 2) for mib in self.most]


# ---- runs
DEFAULTS = dict(apus='', model='', data='', work='', ranks='4', policy='zero2', steps='30', S='4096', accumulation='16', cap_gib='38',
                recompute='auto', backend='nccl', save_steps='4', out='')


def command(options, folder, save_steps='200'):
    policy = ['--fsdp', 'full_shard auto_wrap'] if options['policy'] == 'fsdp' else ['--deepspeed', options['policy']]
    words = [options['apus'], 'dpo', '--model', options['model'], '--dataset', options['data'], '--train_type', 'lora', '--lora_rank', '64',
             '--lora_alpha', '128', '--target_modules', 'q_proj,v_proj,k_proj,o_proj,gate_proj,up_proj,down_proj', '--output_dir', folder,
             *policy, '--per_device_train_batch_size', '1', '--gradient_accumulation_steps', options['accumulation'],
             '--num_train_epochs', '3', '--learning_rate', '5e-5', '--warmup_ratio', '0.03', '--max_length', options['S'], '--save_steps',
             save_steps, '--logging_steps', '1', '--eval_steps', '200', '--bf16', 'true', '--dataloader_num_workers', '8', '--ddp_timeout',
             '1800', '--report_to', 'none', '--use_fast_tokenizer', 'true', '--max_steps', options['steps']]
    if options['recompute'] != 'auto':
        words += ['--gradient_checkpointing', options['recompute']]
    if options['backend'] != 'nccl':
        words += ['--ddp_backend', options['backend']]
    return words


def environment(options):
    kept = {k: v for k, v in os.environ.items() if k not in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT')}
    return dict(kept, NPROC_PER_NODE=options['ranks'])


def steps_of(folder):
    """The training lines of logging.jsonl of the newest version in a run's folder."""
    found = []
    for version in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, version, 'logging.jsonl')
        if version.startswith('v') and os.path.exists(path):
            with open(path) as file:
                found = [json.loads(line) for line in file if line.endswith('\n')]
    return [line for line in found if 'loss' in line and 'global_step/max_steps' in line]


def figures(lines, warm=4):
    """What the steps behind the first four (a third of a short run) reached: tokens of all of them over their time. A line's own
    rate is of the time between two lines, which is no step's where the host is behind the device."""
    key, rate = 'train_speed(s/it)', 'tokens_per_second_per_gpu'
    at = [line[key] * (i + 1) for i, line in enumerate(lines)]  # seconds since the first step began
    each = [b - a for a, b in zip([0.0] + at, at)]
    warm = min(warm, len(lines) // 3)
    tokens, seconds = sum(l[rate] * s for l, s in zip(lines[warm:], each[warm:])), sum(each[warm:])
    reached = tokens / seconds if seconds > 0 else 0.0
    percent = next((l['mfu'] / l[rate] for l in reversed(lines) if l.get('mfu') and l[rate]), None)  # of the peak, a token/s
    return dict(steps=len(lines), losses=[round(line['loss'], 6) for line in lines], tok_s_gpu=round(reached, 1),
                step_s=round(seconds / max(1, len(lines) - warm), 3), mfu_percent=percent and round(percent * reached, 2),
                memory_gib=max((line.get('memory(GiB)') or 0 for line in lines), default=0))


def plan_lines(text):
    return [line.strip()[:400] for line in text.splitlines() if re.search(r'Memory plan|GiB at most|recompute', line)][:4]


def run(options):
    folder = os.path.join(options['work'], '-'.join((options['policy'], options['ranks'], options['steps'])))
    shutil.rmtree(folder, ignore_errors=True)
    with Cap(float(options['cap_gib'])):
        watch, start = CardWatch(), time.time()
        done = subprocess.run(command(options, folder), env=environment(options), capture_output=True, text=True)
        seconds, cards = time.time() - start, watch.gib()
    output = done.stdout + done.stderr
    line = dict(run='seed', policy=options['policy'], ranks=int(options['ranks']), cap_gib=float(options['cap_gib']), rc=done.returncode,
                seconds=round(seconds, 1), card_gib=cards, **figures(steps_of(folder)), plan=plan_lines(output))
    if done.returncode:
        line['error'] = output[-1500:]
    return line


def child_of_rank(launcher, rank):
    """The process that the launcher started as this rank."""
    with open(f'/proc/{launcher}/task/{launcher}/children') as file:
        for child in file.read().split():
            try:
                with open(f'/proc/{child}/environ', 'rb') as variables:
                    if f'RANK={rank}'.encode() in variables.read().split(b'\0'):
                        return int(child)
            except OSError:
                continue
    return 0


def resume(options):
    """One run is killed behind its first checkpoint; the same command goes on."""
    folder = os.path.join(options['work'], 'resume-' + options['policy'])
    shutil.rmtree(folder, ignore_errors=True)
    words, save, victim = command(options, folder, options['save_steps']), int(options['save_steps']), int(options['ranks']) - 1
    log = os.path.join(options['work'], 'resume.log')
    with Cap(float(options['cap_gib'])), open(log, 'w') as file:
        first = subprocess.Popen(words, env=environment(options), stdout=file, stderr=file)
        while first.poll() is None and len(steps_of(folder)) <= save:
            time.sleep(0.05)
        child = child_of_rank(first.pid, victim) if first.poll() is None else 0
        if child:
            os.kill(child, signal.SIGKILL)
        killed, start = len(steps_of(folder)), time.time()
        code = first.wait()
        gone = time.time() - start
        second = subprocess.run(words, env=environment(options), capture_output=True, text=True)
    with open(log) as file:
        said = [line.strip() for line in file if 'rank %d' % victim in line and 'error' in line.lower()][-1:]
    output, lines = second.stdout + second.stderr, steps_of(folder)
    numbers = [int(str(line['global_step/max_steps']).split('/')[0]) for line in lines]
    resumed = [line.strip()[:200] for line in output.splitlines() if re.search(r'[Rr]esum', line)][:2]
    complete = bool(child) and code != 0 and second.returncode == 0 and bool(resumed) and numbers[-1:] == [int(options['steps'])]
    line = dict(run='resume', policy=options['policy'], ranks=int(options['ranks']), killed_rank=victim, killed_after_step=killed,
                first_rc=code, ended_s=round(gone, 1), first_said=said, second_rc=second.returncode, resumed=resumed,
                step_numbers=numbers, complete=complete, rc=0 if complete else 1)
    if not complete:
        line['error'] = output[-1500:]
    return line


def show(line):
    if line['run'] == 'resume':
        print('%-7s %d ranks: rank %d killed after step %d, all out %.1f s later (code %d); again: code %d, %s, %d lines, %s' % (
            line['policy'], line['ranks'], line['killed_rank'], line['killed_after_step'], line['ended_s'], line['first_rc'],
            line['second_rc'], ' '.join(line['resumed']), len(line['step_numbers']), 'complete' if line['complete'] else 'NOT COMPLETE'))
    else:
        print('%-7s %d ranks, cap %g GiB: rc %d, %d steps, %.1f tok/s a GPU, %s s a step, memory %.2f GiB a rank (most), cards %s, %.0f s' % (
            line['policy'], line['ranks'], line['cap_gib'], line['rc'], line['steps'], line['tok_s_gpu'], line['step_s'],
            line['memory_gib'], line['card_gib'], line['seconds']))
        for text in line['plan']:
            print('   ', text)
    if 'error' in line:
        print('   FAILED:', line['error'])


def main(words):
    if not words or words[0] not in ('model', 'data', 'run', 'resume', 'hold'):
        sys.exit(__doc__)
    what, rest = words[0], [w for w in words[1:] if '=' not in w]
    named = [w for w in words[1:] if '=' in w]
    if what == 'hold':
        return hold(float(rest[0]))
    if what == 'model':
        start = time.time()
        total = make_model(rest[0], dict(w.split('=', 1) for w in named).get('size', '14b'))
        print(f'{rest[0]}: {total / 1e9:.2f} GB in {time.time() - start:.1f} s')
        return 0
    if what == 'data':
        values = dict(dict(S='4096', rows='1920'), **dict(w.split('=', 1) for w in named))
        make_data(rest[0], rest[1], int(values['S']), int(values['rows']))
        return 0
    options = parse(words[1:], DEFAULTS)
    if not all(options[key] for key in ('apus', 'model', 'data', 'work')):
        sys.exit(__doc__)
    line = run(options) if what == 'run' else resume(options)
    show(line)
    if options['out']:
        with open(options['out'], 'a') as file:
            file.write(json.dumps(line) + '\n')
    return line['rc']


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
