"""The application: admission, limits, errors, logs and metrics."""

import json
import logging
import socket
import threading
import time

import pytest
from starlette.testclient import TestClient

from shapevm.serve.app import application
from shapevm.serve.logs import FORMS as LOG_FORMS

INFER = "/v2/models/model/infer"


def number(k):
    return {"inputs": [{"name": "k", "shape": [1], "datatype": "INT64", "data": [k]}]}


def head(n_bytes):
    """Return the head of a request by hand."""
    return f"POST {INFER} HTTP/1.1\r\nHost: a\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


def until(holds):
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_info_lists_routes_that_there_are(client, forever):
    served = client(forever)
    found = served.get("/info").json()
    assert found["model_id"] == "model" and found["model_type"] == "program"
    for path in found["routes"]:
        path = path.replace("{name}", "model").replace("{version}", "1")
        assert served.get(path).status_code in (200, 405), path


def test_unknown_routes_and_methods(client, forever):
    served = client(forever)
    for method, path, status in (("GET", "/nothing", 404), ("GET", INFER, 405), ("POST", "/v2", 405)):
        answer = served.request(method, path)
        assert answer.status_code == status and "GET /info lists the routes" in answer.json()["error"]


def test_a_body_that_is_too_long(client, forever):
    served = client(forever, max_body=100)
    for body in (b" " * 101, iter([b" " * 60, b" " * 60])):
        answer = served.post(INFER, content=body)
        assert answer.status_code == 413 and "the limit is 100" in answer.json()["error"]
        assert answer.headers["connection"] == "close"
    assert served.post(INFER, content=json.dumps(number(1)).encode()).status_code == 200


def test_a_body_that_is_compressed(client, forever):
    answer = client(forever).post(INFER, content=b"x", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415 and "'gzip' is not supported" in answer.json()["error"]


def test_a_full_server(service, forever, listening):
    one = service(forever, max_requests=2, workers=1)
    with listening(one) as http:
        body = json.dumps(number(0)).encode()
        running = [socket.create_connection(("127.0.0.1", http.base_url.port)) for _ in range(2)]
        for each in running:
            each.sendall(head(len(body)) + body)
        until(lambda: one.admission.running == 2)
        answer = http.post(INFER, json=number(1))
        assert answer.status_code == 429 and "its limit" in answer.json()["error"]
        assert int(answer.headers["retry-after"]) >= 1
        assert http.get("/v2/health/live").status_code == http.get("/health").status_code == 200
        for each in running:
            each.close()  # the clients leave
        until(lambda: one.admission.running == 0)


def test_bytes_that_are_held(service, forever, listening):
    one = service(forever, max_body=1000)
    with listening(one) as http:
        port = http.base_url.port
        held = []
        for _ in range(8):
            held.append(socket.create_connection(("127.0.0.1", port)))
            held[-1].sendall(head(1000) + b" " * 999)
        until(lambda: one.admission.running == 8)
        answer = http.post(INFER, json=number(1))
        assert answer.status_code == 429 and "bytes of requests" in answer.json()["error"]
        for each in held:
            each.close()
        until(lambda: one.admission.running == 0)
        assert http.post(INFER, json=number(1)).status_code == 200


def test_a_deadline_stops_what_runs(client, service, forever):
    one = service(forever, timeout=0.3, workers=1)
    served = client(one)
    answer = served.post(INFER, json=number(0))
    assert answer.status_code == 504 and "longer than 0.3 s" in answer.json()["error"]
    until(lambda: served.post(INFER, json=number(1)).status_code == 200)


def test_a_client_that_is_slow(service, forever, listening):
    one = service(forever, timeout=0.3)
    with listening(one) as http, socket.create_connection(("127.0.0.1", http.base_url.port)) as slow:
        slow.settimeout(60)
        slow.sendall(head(1000) + b"[")
        assert b" 504 " in slow.recv(1 << 16)
        until(lambda: one.admission.running == 0)


def test_a_failure_of_the_server(client, service, forever, caplog, monkeypatch):
    one = service(forever)
    monkeypatch.setattr(one.inference, "infer", lambda request: 1 / 0)
    answer = client(one).post(INFER, json=number(1), headers={"X-Request-Id": "mine"})
    assert answer.status_code == 500 and answer.json() == {
        "error": "the server failed; its log describes request mine"
    }
    assert answer.headers["x-request-id"] == "mine"
    assert "ZeroDivisionError" in caplog.text


def test_request_ids(client, forever):
    served = client(forever)
    for given in ("x" * 101, "\x7f", "\xe9"):
        answer = served.get("/v2", headers=[(b"x-request-id", given.encode("latin1"))])
        assert len(answer.headers["x-request-id"]) == 32
    assert served.get("/v2", headers={"x-request-id": "a b"}).headers["x-request-id"] == "a b"


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_line_for_each_request(client, forever, caplog, form):
    served = client(forever)
    with caplog.at_level(logging.INFO, "shapevm.serve"):
        served.post(INFER, json=number(1), headers={"X-Request-Id": "one"})
        served.post(INFER, content=b"\n", headers={"X-Request-Id": "two"})
        served.get("/a%0Ab")
    lines = [LOG_FORMS[form]().format(record) for record in caplog.records if hasattr(record, "fields")]
    assert len(lines) == 3 and not any("\n" in line for line in lines)
    if form == "text":
        assert "path='/v2/models/model/infer' status=200" in lines[0] and "id='one'" in lines[0]
        return
    one, two, three = map(json.loads, lines)
    assert one["status"] == 200 and one["items"] == 1 and one["method"] == "POST" and one["id"] == "one"
    assert one["ms"] >= one["waited_ms"] >= 0 and one["time"].endswith("+00:00")
    assert two["status"] == 400 and two["error"].startswith("the body is no valid JSON")
    assert three["status"] == 404


def test_metrics(client, service, linear, forever):
    served = client(service(forever))
    for k in (1, 2):
        assert served.post(INFER, json=number(k)).status_code == 200
    served.post(INFER, content=b"")
    served.get("/else/where")
    text = served.get("/metrics").text
    route = 'route="/v2/models/{name}/infer"'
    assert f'shapevm_server_requests_total{{{route},status="200"}} 2.0' in text
    assert f'shapevm_server_requests_total{{{route},status="400"}} 1.0' in text
    assert 'shapevm_server_requests_total{route="other",status="404"} 1.0' in text
    assert "shapevm_server_batch_items_count 2.0" in text and "shapevm_calls_total" in text
    accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    assert served.get("/metrics", headers=accepted).text.endswith("# EOF\n")


def test_readiness_ends_before_the_server(client, service, forever):
    one = service(forever)
    served = client(one)
    one.is_draining = True
    assert served.get("/v2/health/ready").status_code == served.get("/health").status_code == 503
    assert served.get("/v2/health/live").status_code == 200


def test_readiness_of_a_program_whose_file_was_changed(service, encoder, tmp_path):
    import shapevm
    from shapevm.serve.limits import Limits
    from shapevm.serve.models import Service

    path = tmp_path / "model.svm"
    path.write_bytes(encoder.read_bytes())
    one = Service(shapevm.load(path, copy=False, strategy="generic"), "model", Limits(workers=1))
    with TestClient(application(one), raise_server_exceptions=False) as served:
        assert served.get("/health").status_code == 200
        with open(path, "r+b") as file:
            file.truncate(100)
        answer = served.get("/health")
        assert answer.status_code == 500 and "its log describes" in answer.json()["error"]
    one.close()


def test_clients_that_leave(service, forever, listening):
    """What they sent is neither kept nor run, and threads are free again."""
    one = service(forever, workers=2)
    with listening(one) as http:
        port = http.base_url.port
        body = json.dumps(number(0)).encode()
        given = head(len(body)) + body
        for trial in range(30):
            with socket.create_connection(("127.0.0.1", port)) as link:
                link.sendall(given[: len(given) - trial % 3])
                if trial % 5 == 0:
                    time.sleep(0.02)
        until(lambda: one.admission.running == 0)
        assert http.post(INFER, json=number(1)).json()["outputs"][0]["data"] == [2]
        assert threading.active_count() < 30 and one.admission._held == 0
