"""Reads what multi_gpu.sh wrote and prints its tables: scaling against one GPU and the FSDP2 peer, losses, soak, the seed job.

  python3 multi_gpu_report.py FOLDER

Lines of apus_bench_train belong together by row=NAME: with ranks=N the measured ones, without ranks one GPU's, those whose
accumulation is N times as much one GPU's on the same global batch. Returns 1 where a check fails (losses within 2e-2 x max(|loss|,
0.1) a step and 5e-3 in the mean; equal weights; memory that stands still; rc). A bar that is missed is only marked.
"""
import json, os, statistics, sys

SCALING = {'zero2-lora': 1.95, 'zero2-full': 1.93, 'zero3-full': 1.88, 'fsdp-full': 1.88}  # of two GPUs over one
SEED_BAR = 3.85  # of four over one
HOST_MIB = 32  # what a process may grow by in a soak: caches of libraries


def lines_of(folder, name):
    path = os.path.join(folder, name + '.jsonl')
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith('{')]


def words_of(line):
    return dict(word.split('=', 1) for word in line['apus'].split())


def number(words, key, default):
    return int(float(words.get(key, default)))


def agreement(many, one):
    """How far losses of the same global batches lie apart: the worst step and the means, over max(|loss|, 0.1)."""
    count = min(len(many), len(one))
    many, one = many[:count], one[:count]
    worst = max(abs(a - b) / max(abs(b), 0.1) for a, b in zip(many, one))
    means = statistics.mean(many), statistics.mean(one)
    mean = abs(means[0] - means[1]) / max(abs(means[1]), 0.1)
    return dict(steps=count, worst=worst, mean=mean, agree=worst <= 2e-2 and mean <= 5e-3)


def bar_of(words, ranks):
    kind = 'full' if words.get('kind') == 'full' else 'lora'
    bar = SCALING.get(f'{words.get("policy", "ddp")}-{kind}')
    return bar if ranks == 2 else None


def rows_of(lines):
    """{row: (measured lines, one GPU's, one GPU's on the same global batch)}"""
    rows = {}
    for line in lines:
        if 'error' in line or 'row' not in words_of(line):
            continue
        rows.setdefault(words_of(line)['row'], []).append(line)
    for name, group in rows.items():
        many = [line for line in group if number(words_of(line), 'ranks', 0) > 0]
        steps = {number(words_of(line), 'accumulation', 1) for line in many}
        alone = [line for line in group if number(words_of(line), 'ranks', 0) == 0]
        same = [line for line in alone if number(words_of(line), 'accumulation', 1) not in steps]
        yield name, many, [line for line in alone if line not in same], same


def scaling(many, one):
    """Tokens a second of all ranks over those of one GPU: the medians."""
    if not many or not one:
        return None
    ranks = number(words_of(many[0]), 'ranks', 1)
    return ranks * statistics.median(l['tok_s'] for l in many) / statistics.median(l['tok_s'] for l in one)


def show_training(folder):
    good = True
    lines = lines_of(folder, 'train')
    for line in lines:
        if 'error' in line:
            print('FAILED', line['apus'], line['error'][:600])
            good = False
    peers = lines_of(folder, 'fsdp_peer')
    for name, many, one, same in rows_of(lines):
        for line in many + one:
            ranks = line.get('of_ranks', {})
            print('%-14s ranks %d: %8.1f tok/s a GPU, %8.1f ms (median %.1f), MFU %.3f, peak GiB %s, reserved %s, planned %.2f (%.2f with margin)' % (
                name, number(words_of(line), 'ranks', 0), line['tok_s'], line['ms'], line['ms_median'], line['mfu'],
                ranks.get('peak_gib', line['peak_gib']), ranks.get('reserved_gib', line['reserved_gib']), line['planned_gib'],
                line['planned_with_margin_gib']))
        factor = scaling(many, one)
        if factor is not None:
            bar = bar_of(words_of(many[0]), number(words_of(many[0]), 'ranks', 1))
            print('%-14s %.3f x one GPU%s' % (name, factor, '' if bar is None else ' (bar %.2f%s)' % (bar, '' if factor >= bar else ', BELOW')))
        for line in same[:1]:
            result = agreement(many[0]['losses'], line['losses'])
            good = good and result['agree']
            print('%-14s losses of the same global batches: %d steps, worst %.2e, mean %.2e: %s' % (
                name, result['steps'], result['worst'], result['mean'], 'equal in tolerance' if result['agree'] else 'DIFFERENT'))
        rates = [peer['tok_s'] for peer in peers if peer.get('tok_s')]
        if many and rates and words_of(many[0]).get('kind') == 'full':
            ours = statistics.median(l['tok_s'] for l in many)
            print('%-14s %.3f x FSDP2 in Python (%s tok/s a GPU)' % (name, ours / statistics.median(rates), rates))
    for peer in peers:
        print('peer', {k: peer.get(k) for k in ('peer', 'tok_s', 'ms', 'peaks_gib', 'loss', 'error') if peer.get(k) is not None})
    return good


def show_soak(folder):
    good = True
    for line in lines_of(folder, 'soak'):
        if 'error' in line:
            print('FAILED', line['apus'], line['error'][:600])
            good = False
            continue
        growth, memory = line['memory']['growth_mib'], line['memory']
        flat = max(growth['allocated']) <= 0 and max(growth['reserved']) <= 0 and max(growth['host']) <= HOST_MIB
        good = good and flat and line['weights']['equal']
        print('soak %d steps: weights of %d ranks %s (%d tensors, %.1f MiB, %s)' % (
            len(line['losses']), len(line['of_ranks']['tok_s']), 'equal in every bit' if line['weights']['equal'] else 'DIFFERENT',
            line['weights']['tensors'], line['weights']['mib'], line['weights']['hash']))
        print('     memory %s; growth MiB by rank %s' % ('stands still' if flat else 'GROWS', growth))
        for key in ('allocated_mib', 'reserved_mib', 'host_mib'):
            print('     rank 0', key, ' '.join('%.1f' % x for x in memory[key]))
    return good


def show_seed(folder):
    good, rates = True, {}
    for line in lines_of(folder, 'seed'):
        good = good and line['rc'] == 0
        if line['run'] == 'seed' and line['rc'] == 0:
            rates[line['policy'], line['ranks']] = line
            print('seed %-7s ranks %d: %d steps, %.1f tok/s a GPU, %smemory %.2f GiB a rank at most, on cards %s' % (
                line['policy'], line['ranks'], line['steps'], line['tok_s_gpu'],
                '' if line['mfu_percent'] is None else 'MFU %s %%, ' % line['mfu_percent'], line['memory_gib'], line['card_gib']))
            print('    ', *line['plan'][:1])
        elif line['run'] == 'resume' and line['rc'] == 0:
            print('seed %-7s ranks %d: rank %d killed after step %d; the same command went on: %s' % (
                line['policy'], line['ranks'], line['killed_rank'], line['killed_after_step'], ' '.join(line['resumed'][:1])))
        else:
            print('FAILED', line['run'], line['policy'], line.get('error', '')[-600:])
    one = next((line for (policy, ranks), line in rates.items() if ranks == 1), None)
    for (policy, ranks), line in rates.items():
        if one and ranks > 1:
            factor = ranks * line['tok_s_gpu'] / one['tok_s_gpu']
            mark = '' if ranks != 4 else ' (bar %.2f%s)' % (SEED_BAR, '' if factor >= SEED_BAR else ', BELOW')
            print('seed %-7s %.3f x one GPU%s' % (policy, factor, mark))
    return good


def main(words):
    if len(words) != 1:
        sys.exit(__doc__)
    results = [show(words[0]) for show in (show_training, show_soak, show_seed)]
    return 0 if all(results) else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
