"""Requests as Amazon's services want them: signed with the account's key, or with the role of the machine.

botocore signs and finds the role; the bytes leave by `http.py`, as those of every vendor. Its clients stay out: with
their defaults one `Invoke` becomes five (5.6: C(A5)), where only the engine may repeat one, and no exception of theirs
proves that no byte had left. So there is no retry to be turned off here.
"""

from __future__ import annotations

import logging

from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from batches.providers.errors import NotSent, Unauthorized

# Its debug lines hold what is signed, a session's token among it.
logging.getLogger("botocore.auth").setLevel(logging.INFO)

_SIGNERS = {"lambda": SigV4Auth, "s3": S3SigV4Auth}
#: botocore's names of where a machine's own role is found: a cluster's pod, a container, an instance.
_OF_THE_MACHINE = frozenset({"assume-role-with-web-identity", "container-role", "iam-role"})


def key_parts(api_key: str) -> tuple[str, ...]:
    """Access key id, secret and, of a session, its token, from `id:secret[:token]`; none where it has another form."""
    parts = tuple(api_key.split(":"))
    is_plain = api_key.isascii() and api_key.isprintable() and " " not in api_key
    return parts if len(parts) in (2, 3) and all(parts) and is_plain else ()


class Signer:
    """Signs the requests of one account in one region. Nothing is asked of anybody before the first of them."""

    def __init__(self, api_key: str, region: str) -> None:
        self._api_key = api_key
        self._region = region
        self._found: Credentials | None = None

    def headers(self, service: str, method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """`headers` with the signature, whose time is the machine's and good for some minutes (INFERRED, generic AWS).

        Raises `Unauthorized` without credentials, and `NotSent` where those of the role cannot be had just now.
        """
        request = AWSRequest(method=method, url=url, headers=headers, data=body)
        try:
            if self._found is None:
                self._found = self._credentials()
            _SIGNERS[service](self._found.get_frozen_credentials(), service, self._region).add_auth(request)
        except (BotoCoreError, ClientError, OSError) as error:
            words = "The role of this machine gave no credentials just now, so nothing was sent."
            raise NotSent(words, detail=type(error).__name__) from None
        return dict(request.headers.items())

    def _credentials(self) -> Credentials:
        if not self._api_key:
            return _role()
        parts = key_parts(self._api_key)
        if not parts:
            raise Unauthorized("The account's key is not of the form access key id:secret, or id:secret:session token.")
        return Credentials(*parts)


def _role() -> Credentials:
    """The machine's own role, which renews itself. Keys in the environment or in files are somebody's, not its: an
    account that says nothing must not work with whatever a shell happened to hold."""
    session = Session()
    finder = session.get_component("credential_provider")
    for each in list(finder.providers):
        if each.METHOD not in _OF_THE_MACHINE:
            finder.remove(each.METHOD)
    found = session.get_credentials()
    if found is None:
        raise Unauthorized(
            "The account has no key, and this machine has no role of its own. Set a key as access key id:secret, or "
            "give the machine a role that may invoke the function."
        )
    return found
