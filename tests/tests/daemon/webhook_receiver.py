"""A receiver of webhooks, for tests.

    webhook_receiver.py SECRET PORT_FILE MESSAGES STATUS,STATUS,… [CERTIFICATE KEY]

It listens on a free port of 127.0.0.1 and writes the number to PORT_FILE. Each request becomes a line of
JSON in MESSAGES, with ``is_signed``, and is answered with the next status; the last one repeats. An
answer with the status 302 leads to /redirected. The status 0 closes the connection without an answer.
"""

import base64
import hashlib
import hmac
import http.server
import json
import pathlib
import ssl
import sys

secret, port_file, messages, statuses, *tls = sys.argv[1:]
key = secret.encode()
if secret.startswith("whsec_"):
    key = base64.b64decode(secret.removeprefix("whsec_"))
statuses = [int(status) for status in statuses.split(",")]


class Receiver(http.server.BaseHTTPRequestHandler):
    """Answers one request."""

    def do_GET(self) -> None:
        """Notes a request that no webhook makes."""
        self.do_POST()

    def do_POST(self) -> None:
        """Checks the signature, notes the request and answers."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        identity, time = (self.headers.get(f"webhook-{name}", "") for name in ("id", "timestamp"))
        code = hmac.digest(key, f"{identity}.{time}.".encode() + body, hashlib.sha256)
        signature = "v1," + base64.b64encode(code).decode()
        note = {
            "method": self.command,
            "path": self.path,
            "id": identity,
            "time": int(time or 0),
            "is_signed": self.headers.get("webhook-signature") == signature,
            "type": self.headers.get("Content-Type"),
            "host": self.headers.get("Host"),
            "body": json.loads(body or b"null"),
        }
        with pathlib.Path(messages).open("a", encoding="utf-8") as file:
            file.write(json.dumps(note) + "\n")
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        if status == 0:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if status == 302:
            self.send_header("Location", "/redirected")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
if tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    server.socket = context.wrap_socket(server.socket, server_side=True)
pathlib.Path(port_file + ".new").write_text(str(server.server_port), encoding="utf-8")
pathlib.Path(port_file + ".new").rename(port_file)
server.serve_forever()
