"""A verdict for machines: strict JSON, Markdown, a webhook."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from nightly_examples import Event, history, night, points

from bench.clock import utc_now
from bench.errors import InputError, MachineError
from bench.metrics.change_words import grouped
from bench.nightly import post, series_lines, summary_markdown, verdict_json
from bench.nightly.judge import Watch, judge

DRIVER = (Event(night=30, step=0.06, facts={"gpus.driver": "9"}),)


def verdict(events=DRIVER, **more):
    held = history(*points(events, nights=60, **more))
    return judge(held, Watch(suite="kimi"), judged_at=utc_now())


def strict(value):
    return json.loads(json.dumps(value, allow_nan=False))


def test_the_verdict_is_strict_json():
    told = strict(verdict_json(verdict()))
    assert told["regression"] is True
    assert told["newest"] == str(night(59))
    first = told["regressions"][0]
    assert first["cause"] == "environment"
    assert first["fields"][0]["name"] == "gpus.driver"
    assert first["factors"]["baseline"]["moved"] is True


def test_a_line_a_series():
    lines = [strict(line) for line in series_lines(verdict(()))]
    assert len(lines) == 6
    assert {line["state"] for line in lines} == {"steady"}
    assert all(line["noise"] > 0 and line["level"] > 0 for line in lines)


def test_what_one_night_moved_is_told_once():
    judged = verdict()
    [(lead, others)] = grouped(judged.regressions)
    assert (lead.key.arm, lead.key.metric) == ("eagle3", "output_tok_per_s")
    assert others == len(judged.regressions) - 1 > 0
    assert "1 regression as of" in summary_markdown(judged)


def test_markdown_has_no_markup_of_ours_or_theirs():
    events = (Event(night=30, step=0.06, facts={"gpus.driver": "<b>|`9`"}),)
    text = summary_markdown(verdict(events))
    assert "\\<b\\>\\|\\`9\\`" in text
    assert "| regression | " in text


def test_a_simulated_history_says_so_everywhere():
    judged = verdict(simulated=True)
    assert "SIMULATED" in summary_markdown(judged)
    assert all(line["simulated"] for line in series_lines(judged))


class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hook():
    server = HTTPServer(("127.0.0.1", 0), Hook)
    server.got, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_gets_json_at_its_own_path(hook):
    post(f"http://127.0.0.1:{hook.server_port}/services/T1?x=1", {"text": "hello"})
    assert hook.got == [("/services/T1?x=1", {"text": "hello"})]


def test_a_webhook_that_refuses_or_is_not_there_is_told(hook):
    hook.status = 403
    url = f"http://127.0.0.1:{hook.server_port}/"
    with pytest.raises(MachineError, match="403"):
        post(url, {})
    with pytest.raises(MachineError, match="could not be reached"):
        post("http://127.0.0.1:9/", {})
    with pytest.raises(InputError, match="no http"):
        post("ftp://x/", {})
