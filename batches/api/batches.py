"""The JSON API: read-only, one batch at a time, with a bearer token. Its shape is `selectors.batch_json`."""

from __future__ import annotations

import logging
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError
from ninja.security import HttpBearer

from batches import rights, selectors, tokens
from batches.models import ApiToken, Batch

log = logging.getLogger(__name__)

OTHER_METHODS = ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"]


class BearerToken(HttpBearer):
    """`Authorization: Bearer rpb_…`, made by `manage.py api_token`."""

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        return tokens.proven(token, now=timezone.now())


class CountsOut(Schema):
    total: int
    saved: int
    failed: int
    cancelled: int
    held: int
    in_progress: int


class ItemOut(Schema):
    """`state` is the item's cancellation, else its job's state; the last three are the stored PDF's.

    `provider_job_id` is null for a token whose person may not reveal it."""

    position: int
    business_id: str
    version: int
    state: str
    failure_class: str | None
    provider_job_id: str | None
    storage_key: str | None
    sha256: str | None
    pages: int | None


class BatchOut(Schema):
    """`total` is the sum of the five other counters; every manifest row is an item, in manifest order."""

    id: str
    state: str
    needs_attention: bool
    counts: CountsOut
    items: list[ItemOut]


class ErrorOut(Schema):
    error: str
    message: str


api = NinjaAPI(
    title="RelayPDF Batches",
    version="1",
    description="Batches of one workspace. Make a token with `manage.py api_token USER --name NAME`.",
    auth=BearerToken(),
    urls_namespace="api-1",
)


def error(status: int, code: str, message: str) -> JsonResponse:
    response = JsonResponse({"error": code, "message": message}, status=status)
    if status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


@api.exception_handler(AuthenticationError)
def not_proven(request: HttpRequest, refused: Any) -> HttpResponse:
    words = "Send a living token: Authorization: Bearer rpb_…"
    return error(401, "unauthorized", words)


@api.exception_handler(Exception)
def broken(request: HttpRequest, exception: Exception) -> HttpResponse:
    log.error("the API failed at %s", request.path, exc_info=exception)
    return error(500, "internal_error", "Something broke on our side; it was written to the log. Try again later.")


@api.get(
    "/batches/{batch_id}", response={200: BatchOut, 401: ErrorOut, 404: ErrorOut}, summary="One batch", tags=["Batches"]
)
def batch(request: HttpRequest, batch_id: str) -> HttpResponse:
    """State, counters and every item of one batch of the token's workspace."""
    token: ApiToken = request.auth  # type: ignore[attr-defined] # set by ninja to what `authenticate` gave
    # No stored id holds a NUL, and PostgreSQL refuses to compare with one.
    found = Batch.objects.filter(workspace=token.workspace, public_id=batch_id.replace("\0", "")).first()
    if found is None:
        return error(404, "not_found", "The token's workspace has no such batch.")
    held = rights.rights(token.user, token.workspace)
    response = JsonResponse(selectors.batch_json(found, with_ids=rights.sees_ids(held)))
    response["Cache-Control"] = "no-store"
    return response


@api.api_operation(OTHER_METHODS, "/batches/{batch_id}", auth=None, include_in_schema=False)
def read_only(request: HttpRequest, batch_id: str) -> HttpResponse:
    response = error(405, "method_not_allowed", "This address can only be read: GET.")
    response["Allow"] = "GET"
    return response


def not_found(request: HttpRequest) -> HttpResponse:
    """Whatever else is asked for under /api/ is told so in JSON, not in a page."""
    return error(404, "not_found", "There is nothing here. The API is described at /api/v1/docs.")
