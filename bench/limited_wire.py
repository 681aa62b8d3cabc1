"""A network of given speed on one machine: each rank in a network namespace of its own.

Ranks that share memory hide nothing, for there is no wire. Here two namespaces are joined by a
virtual cable whose ends send no faster than a token bucket allows (`tc tbf`), and MPI speaks TCP
through it. It needs root, iproute2 and MPICH, whose launcher enters a namespace as it would log in
to a host.

    python bench/limited_wire.py 1gbit -m dlprim.bench mpi --models resnet50
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_DEVICE = "wire"
_NAMES = ("dlprim1", "dlprim2")
_ADDRESSES = ("10.77.0.1", "10.77.0.2")
_BURST = "256kb"
_CARRIER = 5  # seconds in which the cable is plugged in
_PATIENCE = "20ms"  # of a packet in the queue
# Called as ssh would be: options, host, command.
_LOGIN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec dlprim${host##*.} sh -c "$*"
"""
ENVIRONMENT = {
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": _DEVICE,
    "GLOO_SOCKET_IFNAME": _DEVICE,
    "MASTER_ADDR": _ADDRESSES[0],  # of rank 0, for gloo
}


@contextlib.contextmanager
def limited_wire(rate: str) -> Iterator[str]:
    """Makes the network and yields a launcher of two ranks; ``rate`` is tc's, such as 1gbit.

    Raises
    ------
    SystemExit
        The system does not let this process make it.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for name in _NAMES:
            _run(f"ip netns add {name}")
            stack.callback(_run, f"ip netns del {name}")
        first, second = _NAMES
        _run(f"ip link add {_DEVICE} netns {first} type veth peer name {_DEVICE} netns {second}")
        for name, address in zip(_NAMES, _ADDRESSES, strict=True):
            _run(f"ip -n {name} addr add {address}/24 dev {_DEVICE}")
            # An IPv6 address may not be used in its first second.
            _run(f"ip -n {name} link set {_DEVICE} addrgenmode none")
            _run(f"ip -n {name} link set {_DEVICE} up")
            _run(f"ip -n {name} link set lo up")
            limit = f"tbf rate {rate} burst {_BURST} latency {_PATIENCE}"
            _run(f"tc -n {name} qdisc add dev {_DEVICE} root {limit}")
        for name in _NAMES:
            _wait_for_carrier(name)
        login = Path(folder) / "login"
        login.write_text(_LOGIN)
        login.chmod(login.stat().st_mode | stat.S_IXUSR)
        yield (
            f"ip netns exec {first} {{mpiexec}} -launcher ssh -launcher-exec {login} "
            f"-iface {_DEVICE} -hosts {','.join(_ADDRESSES)} -ppn 1 -n {{ranks}}"
        )


def _wait_for_carrier(name: str) -> None:
    deadline = time.monotonic() + _CARRIER
    while " UP " not in _run(f"ip -n {name} -br link show {_DEVICE}"):
        if time.monotonic() > deadline:
            raise SystemExit(f"{_DEVICE} in {name} is not up after {_CARRIER} seconds")
        time.sleep(0.05)


def _run(command: str) -> str:
    run = subprocess.run(
        shlex.split(command), capture_output=True, text=True, env=os.environ, check=False
    )
    if run.returncode != 0:
        raise SystemExit(f"{command}: {run.stderr.strip()}")
    return run.stdout


def main() -> int:
    rate, *program = sys.argv[1:]
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = beside if beside.exists() else shutil.which("mpiexec")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the network goes in any case
    with limited_wire(rate) as launcher:
        command = shlex.split(launcher.format(mpiexec=mpiexec, ranks=len(_NAMES)))
        environment = os.environ | ENVIRONMENT
        return subprocess.run([*command, sys.executable, *program], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
