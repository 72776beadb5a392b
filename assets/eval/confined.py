# SPDX-License-Identifier: Apache-2.0
"""Runs a program that a model wrote, after giving up all that a calculation does not need: it may read files, and think for a
while in bounded memory. It cannot write, start or signal processes, or open sockets: a list of system calls is let through, all
others fail. Reads its settings and the program from standard input, and prints the mark it was given when the program has ended
without an error."""
import ctypes
import json
import platform
import resource
import struct
import sys

# The numbers of the calls that are let through; open: those whose flags are looked at, and which argument the flags are.
CALLS = {
    'x86_64': dict(arch=0xC000003E, open={2: 1, 257: 2}, free=[
        0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 23, 24, 25, 28, 32, 33, 35, 39, 60, 63, 79, 89, 96, 97,
        98, 99, 100, 102, 104, 107, 108, 110, 131, 186, 201, 202, 204, 217, 218, 228, 229, 230, 231, 262, 267, 269, 270, 271, 273,
        292, 318, 332, 334, 439]),
    'aarch64': dict(arch=0xC00000B7, open={56: 2}, free=[
        17, 23, 24, 48, 57, 61, 62, 63, 64, 65, 66, 67, 72, 73, 78, 79, 80, 93, 94, 96, 98, 99, 101, 113, 114, 115, 123, 124, 132,
        134, 135, 139, 153, 160, 163, 165, 169, 172, 173, 174, 175, 176, 177, 178, 179, 214, 215, 216, 222, 226, 233, 278, 291,
        293, 439]),
}
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, FAIL, KILL = 0x7FFF0000, 0x00050001, 0x80000000  # FAIL: as if it were not permitted
WRITES = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o20000000  # write, create, truncate, append, a file without a name


def rules(calls):
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, calls['arch']), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    for number, flags in calls['open'].items():
        steps += [(EQUAL, 0, 4, number), (LOAD, 0, 0, 16 + 8 * flags), (ANY_BIT, 1, 0, WRITES), (RETURN, 0, 0, ALLOW),
                  (RETURN, 0, 0, FAIL), (LOAD, 0, 0, 0)]
    for number in calls['free']:
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ALLOW)]
    return steps + [(RETURN, 0, 0, FAIL)]


def confine(seconds, memory):
    calls = CALLS.get(platform.machine())
    if sys.platform != 'linux' or calls is None:
        raise OSError(f'it is not known how, on {sys.platform} {platform.machine()}')
    for what, most in [(resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0),
                       (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 64), (resource.RLIMIT_NPROC, 0)]:
        resource.setrlimit(what, (most, most))
    steps = rules(calls)
    text = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(steps), ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in [(38, 1, 0, 0, 0), (22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0)]:
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), 'the kernel does not let a process give up system calls')
    try:
        open('/dev/null', 'w')
    except PermissionError:
        return
    raise OSError('files can be written nevertheless')


def main():
    task = json.load(sys.stdin)
    try:
        confine(task['seconds'], task['memory'])
    except (OSError, ValueError) as error:
        sys.exit(f'cannot be confined: {error}')
    print(task['confined'], flush=True)
    exec(compile(task['program'], 'answer.py', 'exec'), {'__name__': 'answer'})
    print(task['mark'], flush=True)


main()
