"""Where a traced piece of work spent its time: python3 digest.py TRACE.json... (gpu_bench --trace)"""
import collections
import json
import pathlib
import sys

DEVICE, HOST = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")


def busy(spans):
    total, end = 0.0, 0.0
    for start, stop in sorted(spans):
        if stop > end:
            total += stop - max(start, end)
            end = stop
    return total


def show(path):
    device, host, spans = collections.defaultdict(list), collections.defaultdict(list), []
    for event in json.loads(path.read_text())["traceEvents"]:
        kind = event.get("cat", "")
        if kind in DEVICE:
            device[event["name"]].append(event["dur"])
            spans.append((event["ts"], event["ts"] + event["dur"]))
        elif kind in HOST:
            host[event["name"]].append(event["dur"])
    if not spans:
        return print(f"== {path.stem}: nothing was done on the device")
    wall = max(stop for _, stop in spans) - min(start for start, _ in spans)
    print(f"== {path.stem}: {wall / 1e3:.2f} ms, of which the device works {busy(spans) / 1e3:.2f} ms")
    for title, all_calls, count in (("", device, 22), ("host ", host, 6)):
        for name, times in sorted(all_calls.items(), key=lambda kv: -sum(kv[1]))[:count]:
            print(f"   {title}{sum(times) / 1e3:9.3f} ms {len(times):6d}  {name[:100]}")


for argument in sys.argv[1:]:
    show(pathlib.Path(argument))
