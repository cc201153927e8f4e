"""A small OpenID Connect issuer on loopback: discovery, authorisation, tokens with a code and PKCE, keys, user info.

What a code is made for (`answers`) decides what its tokens say, so that a test can have it lie.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "batches", "a-secret-of-the-client"


class Issuer:
    """`person` is who agrees to sign in next; `lies` says what is wrong with the next tokens."""

    def __init__(self) -> None:
        self.key, self.other_key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
        self.person: dict[str, Any] = {}
        self.lies = ""
        self.codes: dict[str, dict[str, Any]] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.get(self)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                issuer.post(self, parse_qs(self.rfile.read(length).decode()))

            def log_message(self, *told: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def get(self, call: BaseHTTPRequestHandler) -> None:
        address = urlsplit(call.path)
        given = {name: values[0] for name, values in parse_qs(address.query).items()}
        match address.path:
            case "/.well-known/openid-configuration":
                ends = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
                told = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in ends.items()}
                _send(call, told | {"issuer": self.url, "jwks_uri": f"{self.url}/keys"})
            case "/keys":
                public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
                _send(call, {"keys": [public | {"kid": "one", "alg": "RS256", "use": "sig"}]})
            case "/authorize":
                self._authorize(call, given)
            case "/userinfo":
                code = call.headers["Authorization"].removeprefix("Bearer access-")
                said = self.codes[code]["person"]
                _send(call, said | {"sub": "somebody-else"} if self.lies == "subject" else said)
            case _:
                call.send_error(404)

    def _authorize(self, call: BaseHTTPRequestHandler, given: dict[str, str]) -> None:
        assert (given["client_id"], given["response_type"]) == (CLIENT, "code")
        assert given["code_challenge_method"] == "S256"
        answer = {"state": given["state"]}
        if self.lies == "cancelled":
            answer["error"] = "access_denied"
        else:
            answer["code"] = f"code-{len(self.codes)}"
            self.codes[answer["code"]] = {"person": dict(self.person), "challenge": given["code_challenge"]}
        call.send_response(302)
        call.send_header("Location", f"{given['redirect_uri']}?{urlencode(answer)}")
        call.end_headers()

    def post(self, call: BaseHTTPRequestHandler, form: dict[str, list[str]]) -> None:
        code = self.codes[form["code"][0]]
        digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        is_proven = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == code["challenge"]
        if not is_proven or "used" in code:
            _send(call, {"error": "invalid_grant"}, status=400)
            return
        code["used"] = True
        claims = code["person"] | {"iss": self.url, "aud": CLIENT, "iat": time.time(), "exp": time.time() + 60}
        claims |= {"audience": {"aud": "another"}, "issuer": {"iss": "https://other.example"}}.get(self.lies, {})
        claims |= {"exp": time.time() - 600} if self.lies == "expired" else {}
        key = self.other_key if self.lies == "signature" else self.key
        token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})
        answer = {"access_token": f"access-{form['code'][0]}", "token_type": "Bearer", "expires_in": 60}
        _send(call, answer if self.lies == "no token" else answer | {"id_token": token})


def _send(call: BaseHTTPRequestHandler, told: dict[str, Any], *, status: int = 200) -> None:
    body = json.dumps(told).encode()
    call.send_response(status)
    call.send_header("Content-Type", "application/json")
    call.send_header("Content-Length", str(len(body)))
    call.end_headers()
    call.wfile.write(body)
