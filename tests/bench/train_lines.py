"""Reads apus_bench_train's JSON lines from the standard input and prints a few short lines of each."""
import json
import sys

for line in sys.stdin:
    if not line.startswith('{'):
        continue
    case = json.loads(line)
    print(case['apus'])
    if 'error' in case:
        print('  FAILED:', case['error'][:1500])
        continue
    print('  %.0f tok/s (%.0f supervised), %.1f ms a step (median %.1f of %d), MFU %.3f, %.3f of floor %.0f' % (
        case['tok_s'], case['supervised_tok_s'], case['ms'], case['ms_median'], case['steps'], case['mfu'],
        case['share_of_floor'], case['floor_tok_s']))
    print('  peak %.2f GiB, reserved %.2f, planned %.2f (%.2f with margin), standing %.2f, %d cudaMalloc; %.0f W, %.0f MHz; '
          'built %.1f s, first step %.1f s' % (
              case['peak_gib'], case['reserved_gib'], case['planned_gib'], case['planned_with_margin_gib'],
              case['standing_gib'], case.get('driver_allocations', -1), case['watts'], case['mhz'], case['built_s'], case['first_s']))
    losses = case['losses']
    print('  losses %s ... %s' % (' '.join('%.5f' % x for x in losses[:3]), ' '.join('%.5f' % x for x in losses[-2:])))
    if 'profile' in case:
        print('  shares', json.dumps(case['profile']['share']), 'ms', json.dumps(case['profile']['ms']))
        for name, ms, calls in case['profile']['longest'][:25]:
            print('    %9.3f ms %7.1f calls  %s' % (ms, calls, name))
