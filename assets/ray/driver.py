# SPDX-License-Identifier: Apache-2.0
"""Runs the processes of `apus ... --use_ray true` on a Ray cluster: driver.py PLAN.json (cli/ray_groups writes it).

Servers are placed and started first, each on its own devices; then the trainer, on one node where its devices are there, else on
as few nodes as hold equal shares of them. Each process is an actor, which the dashboard shows by its role. A server that dies is
started again at its address. Where a node of the trainer is lost, or its run ends in an error, all of it is started again from its
newest checkpoint, `restarts` times at most. Ends with the trainer's exit code.
"""
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

START_SECONDS = 3600  # until a server must answer: large models are read from slow disks
PLACE_SECONDS = 600


def say(*words):
    print("[ray]", *words, flush=True)


@ray.remote
class Process:
    """One program on one node; its output is the actor's, which Ray shows with role and node."""

    def __init__(self, role):
        self.role, self.child = role, None

    def __repr__(self):  # before each line that Ray shows of it
        return self.role

    def address(self):
        with socket.socket() as free:
            free.bind(("", 0))
            return ray.util.get_node_ip_address(), free.getsockname()[1]

    def start(self, command, environment, directory):
        # Ray tells an actor its devices by such variables; the program's own processes share them out.
        self.child = subprocess.Popen(command, env={**os.environ, **environment}, cwd=directory if os.path.isdir(directory) else None,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        threading.Thread(target=self.show, args=(self.child,), daemon=True).start()

    @staticmethod
    def show(child):
        for line in child.stdout:
            print(line.rstrip("\n").rsplit("\r", 1)[-1], flush=True)

    def code(self):
        """The exit code; None while it runs."""
        return self.child.poll()

    def stop(self):
        if self.child is None or self.child.poll() is not None:
            return
        os.killpg(self.child.pid, signal.SIGTERM)
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)


def device_name():
    """What the cluster calls its devices; processors where it has none."""
    there = ray.cluster_resources()
    return next((name for name in ("GPU", "NPU") if there.get(name, 0) >= 1), "CPU")


def bundles_of(devices, kind):
    """As few equal shares of the devices as the nodes can hold."""
    most = max((int(node["Resources"].get(kind, 0)) for node in ray.nodes() if node["Alive"]), default=0)
    shares = next((n for n in range(1, devices + 1) if devices % n == 0 and devices // n <= most), None)
    if shares is None:
        raise SystemExit(f"[ray] {devices} {kind}s are asked for, and no node of the cluster has any")
    return [devices // shares] * shares


class Group:
    """Actors in their places, one a bundle."""

    def __init__(self, role, number, devices, kind):
        self.sizes = bundles_of(devices, kind)
        self.place = placement_group([{kind: size} for size in self.sizes], strategy="PACK")
        if not self.place.wait(PLACE_SECONDS):
            remove_placement_group(self.place)
            raise SystemExit(f"[ray] {role}: the cluster has no room for {devices} {kind}s: of {ray.cluster_resources().get(kind, 0):g} "
                             f"{ray.available_resources().get(kind, 0):g} are free")
        amount = {"GPU": lambda n: {"num_gpus": n, "num_cpus": 0}, "CPU": lambda n: {"num_cpus": n}}.get(
            kind, lambda n: {"resources": {kind: n}, "num_cpus": 0})
        self.actors = [Process.options(name=f"apus-{os.getpid()}-{role}-{number}-{i}", max_concurrency=4, **amount(size),
                                       scheduling_strategy=PlacementGroupSchedulingStrategy(self.place, placement_group_bundle_index=i),
                                       ).remote(role if len(self.sizes) == 1 else f"{role} {i}") for i, size in enumerate(self.sizes)]

    def codes(self):
        """Exit codes, None for what runs; "lost" where actor or node are gone."""
        found = []
        for actor in self.actors:
            try:
                found.append(ray.get(actor.code.remote(), timeout=60))
            except ray.exceptions.RayError:
                found.append("lost")
        return found

    def end(self):
        for actor in self.actors:
            try:
                ray.get(actor.stop.remote(), timeout=60)
            except ray.exceptions.RayError:
                pass
            ray.kill(actor)
        remove_placement_group(self.place)


class Server:
    def __init__(self, plan, group, number, kind):
        self.plan, self.group, self.number, self.kind, self.port = plan, group, number, kind, None
        self.start()

    def start(self):
        self.place = Group(self.group["role"], self.number, self.group["devices"], self.kind)
        host, port = ray.get(self.place.actors[0].address.remote())
        self.host, self.port = host, self.port or port
        command = [self.plan["program"], *self.group["arguments"], "--host", "0.0.0.0", "--port", str(self.port)]
        ray.get(self.place.actors[0].start.remote(command, {**self.plan["environment"], "NPROC_PER_NODE": str(self.group["devices"])},
                                                  self.plan["directory"]))

    def url(self):
        return f"http://{self.host}:{self.port}"

    def wait(self):
        until = time.time() + START_SECONDS
        while time.time() < until:
            code = self.place.codes()[0]
            if code is not None:
                raise SystemExit(f"[ray] the {self.group['role']} server ended before it answered: {code}")
            try:
                urllib.request.urlopen(self.url() + "/health", timeout=5)
                return
            except OSError:
                time.sleep(0.5)
        raise SystemExit(f"[ray] the {self.group['role']} server at {self.url()} does not answer")

    def keep(self):
        """Started again where it has ended."""
        code = self.place.codes()[0]
        if code is None:
            return
        say(self.group["role"], "server at", self.url(), "has ended:", code, "- it is started again")
        before = self.url()
        self.place.end()
        self.start()
        self.wait()
        if self.url() != before:
            raise Moved()


class Moved(Exception):
    """A server came up on another node: the trainer must be told."""


def newest_checkpoint(output):
    found = glob.glob(os.path.join(output, "**", "checkpoint-*"), recursive=True) if output else []
    return max((path for path in found if os.path.isdir(path)), key=os.path.getmtime, default=None)


def trainer_arguments(plan, servers):
    arguments = list(plan["trainer"]["arguments"])
    for group in plan["servers"]:
        urls = [server.url() for server in servers if server.group is group]
        arguments += [group["address_flag"], *urls]
    return arguments


def train(plan, servers, kind, resumed):
    """The trainer's exit code; "lost" where a part of it is gone."""
    group = Group("train", 0, plan["trainer"]["devices"], kind)
    try:
        host, port = ray.get(group.actors[0].address.remote())
        command = [plan["program"], *trainer_arguments(plan, servers), *(["--resume_from_checkpoint", resumed] if resumed else [])]
        for rank, (actor, size) in enumerate(zip(group.actors, group.sizes)):
            environment = {**plan["environment"], "NNODES": str(len(group.actors)), "NODE_RANK": str(rank), "MASTER_ADDR": host,
                           "MASTER_PORT": str(port), "NPROC_PER_NODE": str(size)}
            ray.get(actor.start.remote(command, environment, plan["directory"]))
        say("train runs on", len(group.actors), "node(s),", plan["trainer"]["devices"], kind + "(s)")
        while True:
            codes = group.codes()
            if all(code == 0 for code in codes):
                return 0
            wrong = [code for code in codes if code not in (None, 0)]
            if wrong:
                return wrong[0]
            for server in servers:
                server.keep()
            time.sleep(1)
    finally:
        group.end()


def main():
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    if os.environ.get("RAY_ADDRESS"):
        say("the cluster is at", os.environ["RAY_ADDRESS"])
    ray.init(address=os.environ.get("RAY_ADDRESS") or None, namespace="apus", log_to_driver=True)
    kind = device_name()
    servers, left, resumed, code = [], plan["restarts"], None, 1

    def stopped(*_):
        raise SystemExit(143)

    signal.signal(signal.SIGTERM, stopped)
    try:
        servers = [Server(plan, group, number, kind) for group in plan["servers"] for number in range(group["copies"])]
        for server in servers:
            server.wait()
            say(server.group["role"], "answers at", server.url())
        while True:
            try:
                code = train(plan, servers, kind, resumed)
            except Moved:
                code = "lost"
            # What the flags or the data are to blame for would come again.
            if code == 0 or (isinstance(code, int) and 2 <= code <= 6) or left == 0:
                break
            left -= 1
            resumed = newest_checkpoint(plan["output"])
            say("train ended:", code, "- it is started again", f"from {resumed}" if resumed else "from its beginning", f"({left} more times)")
    finally:
        for server in servers:
            server.place.end()
        ray.shutdown()
    return code if isinstance(code, int) else 1


if __name__ == "__main__":
    sys.exit(main())
