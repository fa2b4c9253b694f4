"""Prints what tokenizer.sh measured as a table.

usage: tokenizer_report.py WORK_FOLDER TEXT REVISION
"""
import json
import os
import platform
import re
import sys


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read() if name.endswith(".log") else json.load(file)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        found = re.search(r"model name\s*: (.*)", file.read())
    return f"{found.group(1) if found else platform.machine()}, {os.cpu_count()} processors"


def main():
    folder, text, revision = sys.argv[1:]
    before, after = read(folder, "apus_before.json"), read(folder, "apus.json")
    peer, peer_two = read(folder, "peer.json"), read(folder, "peer_two.json")
    speeds = peer["mb_s"]
    fastest = max((name for name in speeds if name != "tiktoken"), key=speeds.get)
    versions = ", ".join(f"{name} {version}" for name, version in peer["versions"].items())
    print("command   tests/bench/tokenizer.sh")
    print(f"machine   {processor()}")
    print(f"versions  apus {revision}, {versions}, Python {platform.python_version()}")
    print(read(folder, os.path.basename(text).removesuffix(".bin") + ".log").strip())
    print(f"ids       {after['equal_documents']} of {after['documents']} documents equal, {after['tokens']} tokens")
    megabytes = f"{after['megabytes']:.0f} MB of mixed text, document by document"
    print(f"\n{megabytes:44s} {'MB/s':>8s}   apus, first pass / best pass, is faster by")
    first = max(before["first_mb_s"], after["first_mb_s"])
    best = max(before["one_thread_mb_s"], after["one_thread_mb_s"])
    two = max(before["two_threads_mb_s"], after["two_threads_mb_s"])
    for name, speed in speeds.items():
        label = name if name == "tiktoken" else "tokenizers " + name
        print(f"{label + ', 1 thread, best of 3':44s} {speed:8.2f}   {first / speed:6.1f} x / {best / speed:6.1f} x")
    (batch,) = peer_two["mb_s"].values()
    print(f"{'tokenizers encode_batch_fast, 2 threads':44s} {batch:8.2f}   {two / batch:6.1f} x (apus' 2 threads)")
    print(f"{'apus, 1 thread, first pass (empty cache)':44s} {first:8.2f}   {first / speeds[fastest]:6.1f} x {fastest}")
    print(f"{'apus, 1 thread, best pass':44s} {best:8.2f}   {best / speeds[fastest]:6.1f} x {fastest}")
    print(f"{'apus, 2 threads, best pass':44s} {two:8.2f}   {two / best:6.2f} x one thread")
    chat = min((before["chat"], after["chat"]), key=lambda c: c["both_us"])
    load = min(before["load_ms"], after["load_ms"])
    print(f"\nload tokenizer.json   {load:.0f} ms (tokenizers {peer['load_ms']:.0f} ms)")
    print(f"chat of four turns    {chat['messages']} messages, {chat['bytes']} bytes, {chat['tokens']} tokens: "
          f"render {chat['render_us']:.1f} us, encode {chat['encode_us']:.1f} us, both {chat['both_us']:.1f} us "
          f"(both less encode: {chat['both_us'] - chat['encode_us']:.1f} us)")
    print(f"goals                 best pass >= 10 x fastest peer: {best >= 10 * speeds[fastest]}; "
          f"two threads >= 1.8 x: {two >= 1.8 * best}; "
          f"chat < 50 us + tokenizer: {chat['both_us'] - chat['encode_us'] < 50}; load < 250 ms: {load < 250}")


if __name__ == "__main__":
    main()
