#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`apus tokenize` on SentencePiece's and tiktoken's files against these libraries: models trained here of every kind, and a
real vocabulary of bytes cut as Qwen 1, Hunyuan, Kimi and GLM-4 cut text. Needs sentencepiece and tiktoken.

Usage: tokenizer_files.py APUS GOLDEN FOLDER
       tokenizer_files.py --keep FOLDER     writes small models and what these libraries make of some texts, as the tests read them
"""
import base64
import glob
import json
import os
import shutil
import sys

import sentencepiece
import tiktoken

from tokenizer_text import report, strings, tokenize

QWEN = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
GLM = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join([r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDS}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDS}",
                 r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# SentencePiece's settings, and the class that tokenizer_config.json names.
PIECES = {
    "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "bpe_no_prefix": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False),
    "bpe_nfkc": dict(model_type="bpe", normalization_rule_name="nmt_nfkc"),
    "bpe_whole": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                      user_defined_symbols=["<tool>", "\u2581\u2581", "\n\n", "a+b"]),
    "unigram": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nmt_nfkc"),
}


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def compare(name, apus, folder, place, texts, encode, decode=None):
    ours = [r.get("ids", r) for r in tokenize(apus, folder, place, [{"text": t} for t in texts], "--add_special_tokens", "false")]
    theirs = [encode(t) for t in texts]
    good = report(f"{name}: ids", ours, theirs, texts)
    if decode is None:
        return good
    shown = [r.get("text", r) for r in tokenize(apus, folder, place, [{"ids": i} for i in theirs])]
    return report(f"{name}: text", shown, [decode(i) for i in theirs], texts) and good


def pieces(apus, folder, texts):
    corpus, good = os.path.join(folder, "corpus.txt"), True
    docs = glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/*.md"))
    with open(corpus, "w", encoding="utf-8") as file:
        for path in sorted(docs):
            file.write(open(path, encoding="utf-8").read() + "\n")
        file.write("\n".join(t.replace("\n", " ") for t in texts))
    for name, settings in PIECES.items():
        place = empty(os.path.join(folder, name))
        sentencepiece.SentencePieceTrainer.train(input=corpus, model_prefix=os.path.join(place, "tokenizer"), vocab_size=1500, minloglevel=2,
                                                 character_coverage=0.98, max_sentence_length=20000, hard_vocab_limit=False, **settings)
        model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(place, "tokenizer.model"))
        shows = settings.get("byte_fallback")  # else what is unknown is shown in another way
        good &= compare(name, apus, folder, place, texts, model.encode, model.decode if shows else None)
    return good


def ranks(apus, golden, folder, texts):
    known = sorted(glob.glob(os.path.join(golden, "text/tokenizers/real/*wen*/tokenizer.json"))) + [os.path.join(golden, "text/tokenizers/tiny-qwen2.5/tokenizer.json")]
    with open(known[0], encoding="utf-8") as file:
        vocab = json.load(file)["model"]["vocab"]
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of = {chr(b): b for b in printable}
    byte_of.update({chr(0x100 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
    ranked = {bytes(byte_of[c] for c in token): rank for token, rank in vocab.items()}
    first = max(ranked.values()) + 1
    said = lambda names: {"added_tokens_decoder": {str(first + i): {"content": name, "special": True} for i, name in enumerate(names)}}
    good = True
    import unicodedata
    for file, pattern, config, specials in (
            ("qwen.tiktoken", QWEN, {"tokenizer_class": "QWenTokenizer"}, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
            ("hy.tiktoken", QWEN, {"tokenizer_class": "HYTokenizer"}, ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"]),
            ("tiktoken.model", KIMI, {"tokenizer_class": "TikTokenTokenizer", **said(["[BOS]", "[EOS]", "<|im_end|>"])}, ["[BOS]", "[EOS]", "<|im_end|>"]),
            ("tokenizer.model", GLM, {"tokenizer_class": "ChatGLM4Tokenizer", **said(["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"])},
             ["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>"])):
        place = empty(os.path.join(folder, file.replace(".", "_")))
        with open(os.path.join(place, file), "w", encoding="utf-8") as out:
            out.writelines(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranked.items())
        write_json(os.path.join(place, "tokenizer_config.json"), config)
        peer = tiktoken.Encoding(file, pat_str=pattern, mergeable_ranks=ranked, special_tokens={name: first + i for i, name in enumerate(specials)})
        form = (lambda t: unicodedata.normalize("NFC", t)) if pattern is QWEN else str
        rows = texts + [f"{a} and{b}\u4f60\u597dWorld's 12345" for a, b in zip(specials, specials[1:])]
        good &= compare(file, apus, folder, place, rows, lambda t: peer.encode(form(t), allowed_special="all"), peer.decode)
        if file == "tokenizer.model":
            marked = tokenize(apus, folder, place, [{"text": "hello"}], "--add_special_tokens", "true")[0]["ids"]
            good &= report("tokenizer.model: before a text", [marked[:2]], [[first + 2, first + 4]], ["hello"])
    # Mistral's: the same tokens behind special ones, the last of them left out.
    place, special, taken = empty(os.path.join(folder, "tekken_json")), 24, {token: rank for token, rank in ranked.items() if rank < first - 1}
    words = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for token, rank in sorted(ranked.items(), key=lambda t: t[1])]
    write_json(os.path.join(place, "tekken.json"), {"vocab": words, "config": {"pattern": GLM, "default_vocab_size": special + first - 1, "default_num_special_tokens": special}})
    peer = tiktoken.Encoding("tekken", pat_str=GLM, mergeable_ranks=taken, special_tokens={})
    good &= compare("tekken.json", apus, folder, place, texts, lambda t: [special + i for i in peer.encode(t)], lambda ids: peer.decode([i - special for i in ids]))
    return good


KEPT = ["Hello, world!", " two  blanks ", "", "a\nb\n\nc", "na\u00efve caf\u00e9 \u4f60\u597d \U0001f600", "\uff21\uff22 \u304b\u3099 \ufb01ne", "<tool>x</tool> a+b", "It's 12345 o'clock"]


def keep(folder):
    os.makedirs(folder, exist_ok=True)
    corpus = os.path.join(folder, "corpus.txt")
    with open(corpus, "w", encoding="utf-8") as file:
        file.write("\n".join(["hello world, the other world is a word of two blanks", "the clock of the tool is at one two three four five",
                              "a naive cafe is fine; it's another world", "wonder who would have thought of it, or told others"] * 4))
    rules = os.path.join(folder, "rules.tsv")  # a few, since nmt_nfkc's are a quarter of a megabyte
    with open(rules, "w", encoding="utf-8") as file:
        file.write("FF21\t41\nFF22\t42\n304B 3099\t304C\nFB01\t66 69\nA\t20\nE9\t65\n")
    expected = {"texts": KEPT}
    for name, settings in PIECES.items():
        if settings["normalization_rule_name"] != "identity":
            settings = {**{k: v for k, v in settings.items() if k != "normalization_rule_name"}, "normalization_rule_tsv": rules}
        place = empty(os.path.join(folder, name))
        sentencepiece.SentencePieceTrainer.train(input=corpus, model_prefix=os.path.join(place, "tokenizer"), vocab_size=330, minloglevel=2,
                                                 hard_vocab_limit=False, **settings)
        os.remove(os.path.join(place, "tokenizer.vocab"))
        model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(place, "tokenizer.model"))
        expected[name] = {"ids": [model.encode(t) for t in KEPT], "text": [model.decode(model.encode(t)) for t in KEPT] if settings.get("byte_fallback") else None}
    os.remove(corpus)
    os.remove(rules)
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)


def main():
    if sys.argv[1] == "--keep":
        return keep(sys.argv[2])
    apus, golden, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    texts = strings(golden)
    # What SentencePiece's program takes for text is a token of its own in a conversation.
    plain = [t for t in texts if t and not any(mark in t for mark in ("<s>", "</s>", "<unk>", "\0", "<0x"))]
    good = pieces(apus, folder, plain)
    return not (ranks(apus, golden, folder, texts) and good)


sys.exit(main())
