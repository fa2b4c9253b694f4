"""Tests of what the scripts for several GPUs work out: python3 -m unittest multi_gpu_test (multi_gpu.sh dry runs it)."""
import json, os, tempfile, unittest

import comm_alternate, comm_peer, multi_gpu_report, seed_job


def trained(words, tok_s, losses=(1.0,), **more):
    return dict(apus=words, tok_s=tok_s, losses=list(losses), **more)


class Collectives(unittest.TestCase):
    def test_factors_are_those_of_nccl_tests(self):
        self.assertEqual(comm_peer.bus_factor('all_reduce', 4), 1.5)
        self.assertEqual(comm_peer.bus_factor('all_gather', 4), 0.75)
        self.assertEqual(comm_peer.bus_factor('send_recv', 4), 1.0)
        self.assertEqual(comm_peer.parse_bytes('64K'), 65536)

    def test_a_ratio_above_one_says_that_apus_is_faster(self):
        case = dict(op='all_reduce', bytes=1024, bus_gb_s=1.0, verified=True)
        records = [([dict(case, us=10.0)], [dict(case, us=12.0)]), ([dict(case, us=10.0)], [dict(case, us=9.0)])]
        row, = comm_alternate.summary(comm_alternate.ratios(records), 0.97)
        self.assertAlmostEqual(row['ratio'], 1.05)
        self.assertTrue(row['passes'] and row['verified'])

    def test_one_wrong_alternation_makes_a_case_wrong(self):
        case = dict(op='broadcast', bytes=1024, us=1.0, bus_gb_s=1.0)
        records = [([dict(case, verified=True)], [dict(case, verified=True)]), ([dict(case, verified=False)], [dict(case, verified=True)])]
        row, = comm_alternate.summary(comm_alternate.ratios(records), 0.97)
        self.assertFalse(row['verified'])


class Report(unittest.TestCase):
    def test_losses_agree_within_bf16(self):
        self.assertTrue(multi_gpu_report.agreement([2.0, 2.01], [2.0, 2.0])['agree'])
        self.assertFalse(multi_gpu_report.agreement([2.0, 2.1], [2.0, 2.0])['agree'])
        self.assertFalse(multi_gpu_report.agreement([2.03, 2.03], [2.0, 2.0])['agree'], 'each near, all to one side')

    def test_lines_of_a_row_are_told_apart(self):
        words = 'row=a kind=full policy=zero3'
        lines = [trained(words, 100.0), trained(words + ' ranks=2', 95.0), trained(words + ' accumulation=2', 110.0),
                 trained(words + ' ranks=2', 97.0), dict(apus='row=a', error='no memory'), trained('kind=full', 1.0)]
        (name, many, one, same), = multi_gpu_report.rows_of(lines)
        self.assertEqual((name, len(many), len(one), len(same)), ('a', 2, 1, 1))
        self.assertAlmostEqual(multi_gpu_report.scaling(many, one), 1.92)
        self.assertEqual(multi_gpu_report.bar_of(multi_gpu_report.words_of(many[0]), 2), 1.88)

    def test_a_soak_that_grows_or_differs_fails(self):
        def soak(host, equal):
            line = trained('kind=full', 1.0, of_ranks=dict(tok_s=[1, 1]), weights=dict(equal=equal, tensors=1, mib=1.0, hash='0'),
                           memory=dict(allocated_mib=[1], reserved_mib=[1], host_mib=[1],
                                       growth_mib=dict(allocated=[0, 0], reserved=[0, 0], host=host)))
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, 'soak.jsonl'), 'w') as file:
                    file.write(json.dumps(line) + '\n')
                return multi_gpu_report.show_soak(folder)
        self.assertTrue(soak([0, 3], True))
        self.assertFalse(soak([0, 300], True))
        self.assertFalse(soak([0, 0], False))


class Seed(unittest.TestCase):
    def test_the_model_has_the_parameters_of_14b(self):
        count = sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for _, shape in seed_job.shapes(seed_job.SIZES['14b']))
        self.assertEqual(count, 14_770_033_664)

    def test_shards_hold_their_limit_or_one_tensor(self):
        self.assertEqual(seed_job.shards([('a', 3), ('b', 3), ('c', 9), ('d', 1)], 6), [['a', 'b'], ['c'], ['d']])

    def test_the_command_is_the_seeds(self):
        options = dict(seed_job.DEFAULTS, apus='apus', model='M', data='D')
        words = seed_job.command(options, 'OUT')
        after = dict(zip(words, words[1:]))
        self.assertEqual((after['--deepspeed'], after['--lora_rank'], after['--save_steps'], after['--gradient_accumulation_steps']),
                         ('zero2', '64', '200', '16'))
        self.assertNotIn('--gradient_checkpointing', words)
        self.assertIn('full_shard auto_wrap', seed_job.command(dict(options, policy='fsdp'), 'OUT'))

    def test_figures_are_tokens_over_time_without_the_first_steps(self):
        # Six steps of 8, 1, 1, 1, 1.9 and 0.1 s, 200 tokens each: the last two lines are near one another.
        ends = [8.0, 9.0, 10.0, 11.0, 12.9, 13.0]
        took = [b - a for a, b in zip([0.0] + ends, ends)]
        lines = [{'loss': 1.0, 'tokens_per_second_per_gpu': 200 / s, 'train_speed(s/it)': end / (i + 1), 'memory(GiB)': 3.0,
                  'mfu': 0.1 * 200 / s} for i, (s, end) in enumerate(zip(took, ends))]
        result = seed_job.figures(lines)
        self.assertAlmostEqual(result['tok_s_gpu'], 200.0)
        self.assertAlmostEqual(result['mfu_percent'], 20.0)
        self.assertEqual((result['steps'], result['memory_gib'], result['step_s']), (6, 3.0, 1.0))


if __name__ == '__main__':
    unittest.main()
