#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trained adapter pushed to a hub on this machine by `apus sft --push_to_hub` and `apus upload`, and read back by huggingface_hub; and
the same folder put there by huggingface_hub itself: both must leave the same files.

Usage: hubs.py APUS GOLDEN FOLDER
"""
import base64
import hashlib
import http.server
import json
import os
import shutil
import sys
import threading

import tiny

COMMIT = "c" * 40


class Hub(http.server.BaseHTTPRequestHandler):
    """HuggingFace's hub as far as uploads and downloads of one branch need it."""
    protocol_version = "HTTP/1.1"
    repos, storage = {}, {}  # files by repository and path; large ones by digest

    def log_message(self, *_):
        pass

    def reply(self, body=b"", status=200, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def files(self):
        return self.repos.setdefault("/".join(self.path.split("/")[3:5]), {})

    def do_PUT(self):
        data = self.body()
        self.storage[hashlib.sha256(data).hexdigest()] = data
        self.reply()

    def do_POST(self):
        data = self.body()
        if self.path == "/api/repos/create":
            asked = json.loads(data)
            name = asked.get("organization", "me") + "/" + asked["name"]
            self.repos.setdefault(name, {})
            return self.reply({"url": f"http://{self.headers['Host']}/{name}", "name": name})
        if self.path == "/api/validate-yaml":
            return self.reply({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            asked = json.loads(data)["files"]
            return self.reply({"files": [{"path": f["path"], "uploadMode": "lfs" if f["path"].endswith(".safetensors") else "regular",
                                          "shouldIgnore": False} for f in asked]})
        if self.path.endswith("/info/lfs/objects/batch"):
            told = []
            for one in json.loads(data)["objects"]:
                there = one["oid"] in self.storage
                put = {"upload": {"href": f"http://{self.headers['Host']}/store/{one['oid']}", "header": {}}}
                told.append({**one, **({} if there else {"actions": put})})
            return self.reply({"transfer": "basic", "objects": told})
        if "/commit/" in self.path:
            for line in data.decode().splitlines():
                one = json.loads(line)
                value = one["value"]
                if one["key"] == "file":
                    self.files()[value["path"]] = base64.b64decode(value["content"])
                if one["key"] == "lfsFile":
                    self.files()[value["path"]] = self.storage[value["oid"]]
            repo = "/".join(self.path.split("/")[3:5])
            return self.reply({"commitUrl": f"http://{self.headers['Host']}/{repo}/commit/{COMMIT}", "commitOid": COMMIT, "success": True})
        return self.reply({}, 404)

    def do_GET(self):
        if "/tree/" in self.path:
            return self.reply([{"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                               for name, data in sorted(self.files().items())])
        if self.path.startswith("/api/models/"):
            names = sorted(self.files())
            return self.reply({"id": "/".join(self.path.split("/")[3:5]), "sha": COMMIT, "private": False, "downloads": 0, "likes": 0,
                               "tags": [], "siblings": [{"rfilename": name} for name in names]})
        owner, name, _, _, *path = self.path.strip("/").split("?")[0].split("/")
        data = self.repos.get(owner + "/" + name, {}).get("/".join(path))
        if data is None:
            return self.reply({}, 404, X_Error_Code="EntryNotFound")
        return self.reply(data, ETag='"' + hashlib.sha256(data).hexdigest() + '"', X_Repo_Commit=COMMIT)

    do_HEAD = do_GET


def main():
    apus, _, folder = sys.argv[1:4]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    os.environ.pop("HF_HUB_OFFLINE", None)  # nothing but this address is asked
    os.environ.update(HF_ENDPOINT=address, HF_HUB_DISABLE_XET="1", HF_HOME=os.path.join(folder, "home"), USE_HF="1", HF_TOKEN="hf_secret")
    import huggingface_hub  # reads the environment

    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model, out, rows = (os.path.join(folder, name) for name in ("model", "out", "rows.jsonl"))
    tiny.run(apus, "init", "--preset", "tiny", "--output_dir", model, "--seed", 5)
    with open(rows, "w", encoding="utf-8") as file:
        for i in range(8):
            file.write(json.dumps({"messages": [{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": str(i)}]}) + "\n")
    tiny.run(apus, "sft", "--model", model, "--dataset", rows, "--tuner_type", "lora", "--output_dir", out, "--max_steps", 2, "--save_steps",
             1, "--add_version", "false", "--push_to_hub", "true", "--hub_model_id", "me/pushed", "--hub_strategy", "all_checkpoints")
    checkpoint = os.path.join(out, "checkpoint-2")
    back = huggingface_hub.snapshot_download("me/pushed", token="hf_secret")
    for name in ("adapter_model.safetensors", "adapter_config.json", "checkpoint-1/adapter_model.safetensors",
                 "checkpoint-2/apus_state.json"):
        mine = os.path.join(out, name) if name.startswith("checkpoint") else os.path.join(checkpoint, name)
        with open(mine, "rb") as a, open(os.path.join(back, name), "rb") as b:
            assert a.read() == b.read(), name
    with open(os.path.join(back, "README.md"), encoding="utf-8") as file:
        card = file.read()
    assert "## Training" in card and "rows.jsonl" in card and folder not in card, card
    assert huggingface_hub.ModelCard(card).data.base_model == "model", card

    tiny.run(apus, "upload", "--folder", checkpoint, "--hub_model_id", "me/ours")
    huggingface_hub.create_repo("me/theirs", exist_ok=True, token="hf_secret")
    huggingface_hub.upload_folder(repo_id="me/theirs", folder_path=checkpoint, token="hf_secret")
    ours, theirs = dict(Hub.repos["me/ours"]), dict(Hub.repos["me/theirs"])
    ours.pop("README.md"), theirs.pop("README.md")  # the card says more
    assert ours == theirs, (sorted(ours), sorted(theirs))
    print(f"{len(ours)} files are the same by apus upload and by huggingface_hub {huggingface_hub.__version__}")


if __name__ == "__main__":
    main()
