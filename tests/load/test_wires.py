"""Every way to a server: TLS, proxies, IPv6, and whatever HTTP allows on the way back."""

from __future__ import annotations

import asyncio
import socket
import zlib

import pytest
from raw_servers import CERTIFICATE, END, OK_HEAD, chunks, serve_proxy, serve_raw, stream_of
from scripted import chat_chunk, chat_events, make_cell, make_workload, sse

from bench.load.generator import open_client
from bench.model import Load, RequestStatus, Timeouts

TOK = 16


async def run(base_url, *, workers=1, **changes):
    values = {"requests": 6, "warmup_requests": 0, "timeouts": Timeouts(request_s=10.0)}
    client = await open_client(base_url, api_key="k3y", workers=workers)
    try:
        return await client.run_cell(make_cell(**(values | changes)), model_name="m")
    finally:
        await client.close()


def assert_all_right(got):
    assert {s.status for s in got.samples} == {RequestStatus.OK}
    assert {s.output_tok for s in got.samples} == {TOK}
    assert {s.event_tok for s in got.samples} == {tuple(range(1, TOK + 1))}


async def whole(writer, request):
    writer.write(stream_of(TOK))


async def test_connections_are_kept_and_used_again():
    async with serve_raw(whole) as server:
        got = await run(server.base_url)
    assert_all_right(got)
    assert server.connections == 2
    assert got.client.second_reader_ct == 0
    head = server.heads[0]
    assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert f"Host: {server.host}:{server.port}\r\n" in head
    for field in (
        "Authorization: Bearer k3y",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
    ):
        assert f"\r\n{field}\r\n" in head


async def test_a_path_prefix_as_behind_a_router():
    async with serve_raw(whole) as server:
        assert_all_right(await run(f"{server.base_url}/pool/a"))
    assert server.heads[0].startswith("POST /pool/a/v1/chat/completions HTTP/1.1\r\n")


async def test_ipv6():
    async with serve_raw(whole, host="::1") as server:
        assert_all_right(await run(server.base_url))
    assert f"Host: [::1]:{server.port}\r\n" in server.heads[0]


async def test_tls(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with serve_raw(whole, tls=True) as server:
        got = await run(server.base_url.replace("http:", "https:"))
    assert_all_right(got)
    assert server.connections == 2


async def test_a_certificate_that_is_not_trusted():
    async with serve_raw(whole, tls=True) as server:
        got = await run(server.base_url.replace("http:", "https:"))
    assert {s.status for s in got.samples} == {RequestStatus.REFUSED}
    assert "certificate" in got.samples[0].error_message.lower()
    assert server.heads == []


async def test_a_proxy_for_plain_http(monkeypatch):
    async with serve_raw(whole) as server, serve_proxy(server) as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:secret@{proxy.host}:{proxy.port}")
        got = await run("http://server.test:8000")
    assert_all_right(got)
    assert proxy.heads[0].startswith("POST http://server.test:8000/v1/chat/completions HTTP/1.1")
    assert "\r\nProxy-Authorization: Basic " in proxy.heads[0]
    assert proxy.connections == 2


async def test_a_tunnel_through_a_proxy(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with serve_raw(whole, tls=True) as server, serve_proxy(server) as proxy:
        monkeypatch.setenv("https_proxy", f"http://{proxy.host}:{proxy.port}")
        got = await run("https://server.test:8443")
    assert_all_right(got)
    assert {head.split(" HTTP")[0] for head in proxy.heads} == {"CONNECT server.test:8443"}
    assert server.heads[0].startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "Proxy" not in server.heads[0]


async def test_a_proxy_that_refuses_the_tunnel(monkeypatch):
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    got = await run("https://server.test:8443")
    server.close()
    assert {(s.status, s.http_status) for s in got.samples} == {(RequestStatus.HTTP_ERROR, 407)}


# --------------------------------------------------------------------------------- the way back


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_compressed_stream_is_read_by_the_second_reader(coding):
    async def compressed(writer, request):
        press = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
        head = OK_HEAD[:-2] + f"Content-Encoding: {coding}\r\n\r\n".encode()
        for event in chat_events(TOK):
            data = press.compress(event) + press.flush(zlib.Z_SYNC_FLUSH)
            writer.write(head + chunks(data))
            head = b""
            await asyncio.sleep(0.002)
        writer.write(chunks(press.flush()) + END)

    async with serve_raw(compressed) as server:
        got = await run(server.base_url)
    assert_all_right(got)
    assert got.client.second_reader_ct == 6
    for sample in got.samples:
        assert list(sample.event_ns) == sorted(sample.event_ns)
        # Each event by its own read; a busy machine brings some together.
        assert 1 < len(set(sample.event_ns)) <= sample.read_ct


async def test_a_compressed_stream_of_megabytes():
    text = "x" * 10_000_000

    async def bomb(writer, request):
        events = sse(chat_chunk(text, finish="stop", tok=1)) + sse("[DONE]")
        data = zlib.compress(events, wbits=31)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(data) + data)

    async with serve_raw(bomb) as server:
        got = await run(server.base_url, requests=1, workload=make_workload(store_text=True))
    assert got.samples[0].text == text


async def test_a_broken_compressed_stream():
    async def broken(writer, request):
        writer.write(OK_HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n" + chunks(b"no gzip") + END)

    async with serve_raw(broken) as server:
        got = await run(server.base_url, requests=2)
    assert {s.status for s in got.samples} == {RequestStatus.MALFORMED_STREAM}


async def test_a_compressed_stream_that_is_cut():
    async def cut(writer, request):
        press = zlib.compressobj(wbits=31)
        data = press.compress(b"".join(chat_events(3)[:3])) + press.flush(zlib.Z_SYNC_FLUSH)
        writer.write(OK_HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n" + chunks(data))
        await writer.drain()
        writer.close()

    async with serve_raw(cut) as server:
        got = await run(server.base_url, requests=2)
    assert {s.status for s in got.samples} == {RequestStatus.DISCONNECTED}
    assert {len(s.event_ns) for s in got.samples} == {2}


async def test_a_stream_of_stated_length():
    async def counted(writer, request):
        body = b"".join(chat_events(TOK))
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        for start in range(0, len(head + body), 700):
            writer.write((head + body)[start : start + 700])
            await asyncio.sleep(0.001)

    async with serve_raw(counted) as server:
        assert_all_right(await run(server.base_url))
    assert server.connections == 2


async def test_a_stream_that_ends_with_the_connection():
    async def unframed(writer, request):
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + b"".join(chat_events(TOK)))
        await writer.drain()
        writer.close()

    async with serve_raw(unframed) as server:
        assert_all_right(await run(server.base_url))
    assert server.connections >= 6


async def test_a_server_that_closes_after_each_response():
    async def once(writer, request):
        writer.write(OK_HEAD[:-2] + b"Connection: close\r\n\r\n" + stream_of(TOK)[len(OK_HEAD) :])
        await writer.drain()
        writer.close()

    async with serve_raw(once) as server:
        assert_all_right(await run(server.base_url))


async def test_a_server_that_closes_after_each_response_without_saying_so():
    """No request is sent where the server has hung up already."""

    async def once(writer, request):
        # The end of the connection comes in the same packet as that of the response.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        writer.write(stream_of(TOK))
        writer.write_eof()
        await asyncio.sleep(1.0)  # until then the other way is open

    async with serve_raw(once) as server:
        got = await run(server.base_url, load=Load(kind="closed", concurrency=1))
    assert_all_right(got)
    assert server.connections == 6


async def lone(server, requests=6):
    """A closed cell of one slot against a raw server, with the requests' ids."""
    load = Load(kind="closed", concurrency=1)
    return await run(server.base_url, load=load, requests=requests)


async def test_a_request_that_meets_a_connection_being_closed_is_sent_again():
    """The server hangs up a moment after each response: too late to be seen before the send."""
    rids = []

    async def once(writer, request):
        rids.append(request["rid"])
        writer.write(stream_of(TOK))
        await writer.drain()
        await asyncio.sleep(0.02)
        raise ConnectionError

    async with serve_raw(once) as server:
        got = await lone(server)
    assert_all_right(got)
    assert got.client.resent_ct == 5  # but the first, on a connection of its own
    assert [s.index for s in got.samples] == list(range(6))
    assert len(set(rids)) == 6
    assert {len(rid) for rid in rids} == {32}
    assert all(s.due_ns < s.sent_ns < s.first_byte_ns for s in got.samples)


async def test_a_request_is_sent_again_no_more_than_once():
    async def never(writer, request):
        if len(served) == 1:
            writer.write(stream_of(TOK))
            await writer.drain()
        served.append(request["rid"])
        if len(served) > 2:
            raise ConnectionError

    served: list[str] = ["first"]
    async with serve_raw(never) as server:
        got = await lone(server, requests=2)
    assert [s.status for s in got.samples] == [RequestStatus.OK, RequestStatus.DISCONNECTED]
    assert len(served) == 4  # the first, the second and that again
    assert got.client.resent_ct == 1


@pytest.mark.parametrize("case", ["answered in part", "worked at for a while"])
async def test_a_request_that_was_heard_is_not_sent_again(case):
    served: list[str] = []

    async def fails(writer, request):
        served.append(request["rid"])
        if len(served) == 1:
            writer.write(stream_of(TOK))
            return
        if case == "answered in part":
            writer.write(OK_HEAD)
            await writer.drain()
        await asyncio.sleep(0.05 if case == "answered in part" else 0.4)
        raise ConnectionError

    async with serve_raw(fails) as server:
        got = await lone(server, requests=2)
    assert [s.status for s in got.samples] == [RequestStatus.OK, RequestStatus.DISCONNECTED]
    assert len(served) == 2
    assert got.client.resent_ct == 0


async def test_a_response_that_is_over_for_the_api_but_not_for_http():
    async def no_last_chunk(writer, request):
        writer.write(OK_HEAD + chunks(*chat_events(TOK)))

    async with serve_raw(no_last_chunk) as server:
        got = await run(server.base_url, requests=2, timeouts=Timeouts(request_s=0.5))
    assert_all_right(got)
    assert all(s.ended_ns == s.event_ns[-1] for s in got.samples)  # not when it was given up


async def test_a_response_byte_by_byte():
    async def slowly(writer, request):
        for byte in stream_of(TOK)[-400:]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)

    async def all_but_the_end_at_once(writer, request):
        writer.write(stream_of(TOK)[:-400])
        await writer.drain()
        await slowly(writer, request)

    async with serve_raw(all_but_the_end_at_once) as server:
        assert_all_right(await run(server.base_url, requests=3))


async def test_more_than_the_end_with_the_last_read():
    """A response is whole at its end, whatever a confused server puts behind it."""

    async def babbles(writer, request):
        writer.write(stream_of(TOK) + b"HTTP/1.1 408 Request Timeout\r\n")

    async with serve_raw(babbles) as server:
        got = await run(server.base_url, requests=3, load=Load(kind="closed", concurrency=1))
    assert_all_right(got)
    assert server.connections == 3
    assert all(s.ended_ns - s.sent_ns < 400_000_000 for s in got.samples)  # its end, not its time


async def test_what_is_no_http():
    async def rubbish(writer, request):
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    async with serve_raw(rubbish) as server:
        got = await run(server.base_url, requests=2)
    assert {s.status for s in got.samples} == {RequestStatus.MALFORMED_STREAM}
    assert "SSH-2.0" in got.samples[0].error_message
