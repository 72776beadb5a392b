#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many of the checkpoints that ms-swift lists are of a family that Apus reads: text models and those that see or hear.

Usage: swift_models.py SWIFT_FOLDER [--missing]     (SWIFT_FOLDER: its source, or the package: .../site-packages/swift)

A family reads a checkpoint where it names the architecture that ms-swift has for it. Nothing of ms-swift is run.
"""
import argparse
import ast
import collections
import pathlib
import re

# Written as Llama, and read under their own name too; of another class than that of their family's.
ALSO = {"iquestcoder", "bailingmoe", "bailingmoev25"}
# Whose architecture ms-swift does not say: that of the family which reads them.
UNSAID = {"deepseek_vl2": ["DeepseekOCRForCausalLM"], "deepseek_janus": ["MultiModalityCausalLM"], "deepseek_janus_pro": ["MultiModalityCausalLM"]}
# Of another make than those that have this architecture too, and not read: Yi-VL has norms in its projector and a tower in a folder of its own.
OTHERS = {"yi_vl"}
FAMILIES = pathlib.Path(__file__).resolve().parents[2] / "src/models/families"


def family(architecture):
    """The same for all heads of a family, and for the two spellings that some have."""
    return re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", architecture).replace("_", "").lower()


def ours():
    text = "".join(path.read_text() for path in FAMILIES.glob("*.cpp"))
    return {family(name) for name in re.findall(r'\.architecture = "(\w+)"', text)} | ALSO


def texts(node):
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def theirs(folder):
    """(multimodal, type, architectures, checkpoints) of each register_model(...)."""
    for path in sorted(folder.rglob("models/*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "").endswith("ModelMeta")):
                continue
            kind, groups = call.args[0], call.args[1] if len(call.args) > 1 else None
            named = {word.arg: word.value for word in call.keywords}
            seen = isinstance(kind, ast.Attribute) and kind.value.id.startswith("MLLM")
            models = {m.args[0].value if m.args and isinstance(m.args[0], ast.Constant) and m.args[0].value else (texts(m) or [None])[0]
                      for m in ast.walk(groups or ast.List([])) if isinstance(m, ast.Call) and getattr(m.func, "id", "") == "Model"}
            name = getattr(kind, "attr", "?")
            yield seen, name, texts(named["architectures"]) if "architectures" in named else UNSAID.get(name, []), models


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("swift", type=pathlib.Path)
    ask.add_argument("--missing", action="store_true")
    o = ask.parse_args()
    known, read, all_, missing = ours(), collections.Counter(), collections.Counter(), collections.Counter()
    for seen, kind, architectures, models in theirs(o.swift):
        all_[seen] += len(models)
        if kind not in OTHERS and any(family(one) in known for one in architectures):
            read[seen] += len(models)
        else:
            missing[seen, kind, ", ".join(architectures)] += len(models)
    for seen, title in ((False, "text"), (True, "see or hear")):
        print(f"{title}: {read[seen]} of {all_[seen]} checkpoints, {100 * read[seen] / max(1, all_[seen]):.0f} %")
    for (seen, kind, architectures), count in sorted(missing.items(), key=lambda item: -item[1]) if o.missing else ():
        print(f"  {count:3} {'sees' if seen else 'text'} {kind}: {architectures}")


main()
