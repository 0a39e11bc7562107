"""Does the scripted model keep its beat: `python -m bench.streams [--json] [--streams 200]`.

Many clients ask at once for a reply that trickles. Goal: no piece comes a whole beat late. The peer
is a bare asyncio server in the same run, which writes the same pieces at the same beat and knows no
HTTP: what is above it in lateness and CPU time is the server's own. Lateness is counted from the
beat that a stream's earliest piece sets.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from itertools import pairwise
from statistics import median
from typing import Any

import psutil

from segue.core.sessions.spend import Spend
from segue.drill.model.answer import ModelAnswer, ModelReply
from segue.drill.model.ask import Ask, Kind
from segue.drill.model.server import ModelServer
from segue.drill.model.wires import anthropic

BEAT_S = 0.1
TEXT = "All is well, and so it goes on and on. " * 12
END = b"\r\n0\r\n\r\n"


class Trickler:
    """Says the same to all."""

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        reply = ModelReply(text=TEXT, spend=Spend(input_tokens=10, output_tokens=100))
        return ModelAnswer(reply=reply, delivery="trickle", chunk_s=BEAT_S)


def pieces() -> list[bytes]:
    """What one stream is made of."""
    ask = Ask(wire="anthropic", model="m", parts=(), is_stream=True)
    return list(anthropic.WIRE.pieces(ask, Trickler().answer(ask, 0.0)))


async def serve(peer: str) -> None:
    """The server under test, or the bare one, until its parent closes the pipe."""
    if peer == "bare":
        sent = pieces()

        async def bare(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            loop = asyncio.get_running_loop()
            start = loop.time()
            for number, piece in enumerate(sent):
                await asyncio.sleep(start + number * BEAT_S - loop.time())
                writer.write(piece)
                await writer.drain()
            writer.write(END)
            writer.close()

        listener = await asyncio.start_server(bare, "127.0.0.1", 0, backlog=1024)
        port = listener.sockets[0].getsockname()[1]
    else:
        port = await ModelServer(Trickler(), kind_of=lambda ask: Kind.MAIN).start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def listen(port: int, count: int) -> list[float]:
    """When each piece of one stream came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user"}]})
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body.encode())
    came: list[float] = []
    data = b""
    while END not in data[-20:]:
        more = await reader.read(65536)
        if not more:
            break
        fresh = more.count(b"event: ") - more.count(b"event: message_stop")
        came += [time.perf_counter()] * fresh
        data += more
    writer.close()
    if len(came) != count:
        sys.exit(f"a stream of {len(came)} pieces instead of {count}")
    return came


def lateness(came: list[float]) -> list[float]:
    start = min(at - number * BEAT_S for number, at in enumerate(came))
    return [at - number * BEAT_S - start for number, at in enumerate(came)]


def measure(peer: str, streams: int) -> dict[str, Any]:
    """One round of all streams against one server in a process of its own."""
    command = [sys.executable, "-m", "bench.streams", "--serve", peer]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("no pipes")
        port = int(child.stdout.readline())
        used = psutil.Process(child.pid)
        before = used.cpu_times()
        count = len(pieces())

        async def all_of_them() -> list[list[float]]:
            return await asyncio.gather(*(listen(port, count) for _ in range(streams)))

        start = time.perf_counter()
        came = asyncio.run(all_of_them())
        took = time.perf_counter() - start
        after = used.cpu_times()
        child.stdin.close()
    late = sorted(late for one in came for late in lateness(one))
    gaps = [later - sooner for one in came for sooner, later in pairwise(one)]
    cpu = after.user + after.system - before.user - before.system
    return {
        "p50_ms": round(1e3 * late[len(late) // 2], 2),
        "p99_ms": round(1e3 * late[int(len(late) * 0.99)], 2),
        "max_ms": round(1e3 * late[-1], 2),
        "longest_gap_ms": round(1e3 * max(gaps), 1),
        "missed_beats": sum(one > BEAT_S for one in late),
        "pieces": len(late),
        "cpu_s": round(cpu, 2),
        "cpu_percent": round(100 * cpu / took, 1),
        "us_each": round(1e6 * cpu / len(late)),
    }


def middle(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure; missed beats of every round, for a loaded machine has bad ones."""
    found = {name: median(row[name] for row in rows) for name in rows[0]}
    return {**found, "missed_beats": [row["missed_beats"] for row in rows]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=("scripted", "bare"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return
    rounds = [
        {peer: measure(peer, options.streams) for peer in ("bare", "scripted")}
        for _ in range(options.rounds)
    ]
    bare, scripted = (middle([one[peer] for one in rounds]) for peer in ("bare", "scripted"))
    found = {
        "streams": options.streams,
        "beat_ms": round(1e3 * BEAT_S),
        "bare": bare,
        "scripted": scripted,
        "cpu_ratio": round(scripted["cpu_s"] / max(0.01, bare["cpu_s"]), 2),
        "p99_ratio": round(scripted["p99_ms"] / max(0.01, bare["p99_ms"]), 2),
    }
    if options.json:
        print(json.dumps(found))
        return
    print(f"{options.streams} streams at once, a piece every {found['beat_ms']} ms:")
    for name, row in (("bare asyncio", bare), ("scripted model", scripted)):
        missed = ", ".join(map(str, row["missed_beats"]))
        print(f"  {name}: {missed} of {row['pieces']} pieces a beat late; lateness ", end="")
        print(f"p50 {row['p50_ms']}, p99 {row['p99_ms']}, most {row['max_ms']} ms; ", end="")
        print(f"{row['cpu_percent']}% of a core, {row['us_each']} µs a piece")
    print(f"  ratio: CPU {found['cpu_ratio']}, p99 {found['p99_ratio']}")


if __name__ == "__main__":
    main()
