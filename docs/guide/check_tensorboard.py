"""Reads a run's event files with TensorBoard's own reader and compares them with logging.jsonl.

    python -m venv tb && tb/bin/pip install tensorboard
    tb/bin/python docs/guide/check_tensorboard.py OUT/v0-.../       # a run
    tb/bin/python docs/guide/check_tensorboard.py --golden FILE     # writes the golden file of the unit test
"""
import json
import math
import os
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def write_golden(path):
    """The events that tests/unit/train/event_file_test.cpp writes, through TensorBoard's protobufs and writer."""
    with open(path, "wb") as file:
        writer = RecordWriter(file)
        writer.write(event_pb2.Event(wall_time=1767225600.0, file_version="brain.Event:2").SerializeToString())
        for step, values in [(1, {"train/loss": 2.5, "train/learning_rate": 1e-4, "train/grad_norm": float("nan")}),
                             (300, {"eval/loss": -0.125}),
                             (5_000_000_000, {"train/loss": 1e-9})]:
            event = event_pb2.Event(wall_time=1767225600.0 + step, step=step)
            for tag, value in values.items():
                event.summary.value.add(tag=tag, simple_value=value)
            writer.write(event.SerializeToString())


def logged(path):
    """{tag: {step: value}} of logging.jsonl, under the names of transformers' TensorBoardCallback."""
    tags = {}
    for line in open(path):
        record = json.loads(line)
        step = int(record["global_step/max_steps"].split("/")[0])
        evaluation = any(key.startswith("eval_") for key in record)
        for key, value in record.items():
            if isinstance(value, (int, float)) and (key.startswith("eval_") or not evaluation):
                tag = "eval/" + key[len("eval_"):] if key.startswith("eval_") else "train/" + key
                tags.setdefault(tag, {})[step] = value
    return tags


def check(run):
    events = EventAccumulator(os.path.join(run, "runs"), size_guidance={"scalars": 0}).Reload()
    expected = logged(os.path.join(run, "logging.jsonl"))
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert set(found) == set(expected), set(found) ^ set(expected)
    for tag, points in found.items():
        assert [step for step, _ in points] == sorted(expected[tag]), (tag, points)
        for step, value in points:
            wanted = expected[tag][step]
            assert math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-30), (tag, step, value, wanted)
    print(f"{len(found)} tags, {sum(map(len, found.values()))} points: equal to logging.jsonl")


if sys.argv[1] == "--golden":
    write_golden(sys.argv[2])
else:
    check(sys.argv[1])
