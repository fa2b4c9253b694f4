"""apus_bench_comm and comm_peer.py in turn, in one run; prints what each case reached and the ratios.

  python3 comm_alternate.py apus=PATH_OF_apus_bench_comm [n=3] [bar=0.97] [budget=400] [out=FILE.jsonl] [KEY=VALUE of both ...]

A ratio is the median over the alternations of apus's bandwidth over PyTorch's (of PyTorch's time over apus's for the
barrier). A case below the bar is marked; returns 1 if contents were wrong or a program failed, not for a slow case.
"""
import json, os, statistics, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))


def lines_of(command, seconds):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{')]
    if done.returncode or not lines:
        print('FAILED', done.returncode, ' '.join(command), done.stderr[-600:], flush=True)
    return done.returncode, lines


def ratios(records):
    """{(op, bytes): [figure of apus / figure of torch, one an alternation]}, and the figures of both."""
    table = {}
    for apus, torch in records:
        of_torch = {(line['op'], line['bytes']): line for line in torch}
        for line in apus:
            key = line['op'], line['bytes']
            if key in of_torch:
                row = table.setdefault(key, dict(ratios=[], apus=[], torch=[]))
                row['ratios'].append(of_torch[key]['us'] / line['us'])
                row['apus'].append(line)
                row['torch'].append(of_torch[key])
    return table


def summary(table, bar):
    for (op, size), row in table.items():
        middle = lambda who, figure: statistics.median(line[figure] for line in row[who])
        line = dict(op=op, bytes=size, ratio=round(statistics.median(row['ratios']), 4), ratios=[round(r, 4) for r in row['ratios']],
                    apus_us=round(middle('apus', 'us'), 2), torch_us=round(middle('torch', 'us'), 2))
        if size:
            line.update(apus_bus_gb_s=round(middle('apus', 'bus_gb_s'), 2), torch_bus_gb_s=round(middle('torch', 'bus_gb_s'), 2),
                        verified=all(l['verified'] for who in ('apus', 'torch') for l in row[who]))
        line['passes'] = line['ratio'] >= bar
        yield line


def main(words):
    options = dict(apus='', n='3', bar='0.97', budget='400', out='')
    both = []
    for word in words:
        key, _, value = word.partition('=')
        if key in options:
            options[key] = value
        else:
            both.append(word)
    if not options['apus']:
        sys.exit(__doc__)
    end = time.time() + float(options['budget'])
    records, failed, longest = [], False, 0.0
    for _ in range(int(options['n'])):
        if records and time.time() + longest > end:
            break
        start, pair = time.time(), []
        for command in ([options['apus'], *both], [sys.executable, os.path.join(HERE, 'comm_peer.py'), *both]):
            code, lines = lines_of(command, max(30.0, end - time.time()))
            failed = failed or code != 0
            pair.append(lines)
        records.append(pair)
        longest = max(longest, time.time() - start)
    rows = list(summary(ratios(records), float(options['bar'])))
    print('%-15s %12s %10s %10s %9s %9s %7s  all ratios, %d alternations' % ('operation', 'bytes', 'apus us', 'torch us', 'apus GB/s',
                                                                      'torch', 'ratio', len(records)))
    for row in rows:
        print('%-15s %12d %10.1f %10.1f %9.2f %9.2f %7.3f  %s%s' % (
            row['op'], row['bytes'], row['apus_us'], row['torch_us'], row.get('apus_bus_gb_s', 0), row.get('torch_bus_gb_s', 0), row['ratio'],
            ' '.join('%.3f' % r for r in row['ratios']), '' if row['passes'] else '  BELOW %s' % options['bar']))
        if options['out']:
            with open(options['out'], 'a') as file:
                file.write(json.dumps(dict(row, words=' '.join(both))) + '\n')
    wrong = [row for row in rows if not row.get('verified', True)]
    print(f'{len(rows)} cases, {len(wrong)} wrong, {sum(not row["passes"] for row in rows)} below {options["bar"]}')
    return 1 if failed or wrong or not rows else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
