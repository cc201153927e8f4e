"""A renderer for AWS Lambda that keeps the contract of docs/lambda-renderer.md.

One key, one file: it looks for the result first, renders, and stores only where nothing is. So it may be called twice,
at the same time too, and may die anywhere.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import boto3
from botocore.exceptions import ClientError
from engine import BadDocument, render

CONTRACT = 1
#: PlutoPrint takes paper and margins from the page's own CSS. Another option would be left out without a word.
OPTIONS = {"preferCSSPageSize": True}
#: Two runs that store at the same moment: S3 turns one away, and only says who was first when it is asked again.
STORE_TRIES = 5

s3 = boto3.client("s3")


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """What the contract calls an answer. Whatever it raises is worth another run."""
    job = _whole(event)
    if job["contract"] != CONTRACT:
        raise ValueError(f"this renderer keeps contract {CONTRACT}, not {job['contract']}")
    if done := _stored(job):
        return done
    try:
        pdf = _rendered(job)
    except BadDocument as error:
        return _failed(job, error)
    if not pdf.startswith(b"%PDF-"):
        raise RuntimeError("the engine made something that is no PDF")
    facts = {"sha256": hashlib.sha256(pdf).hexdigest(), "bytes": str(len(pdf)), "version": _version(context)}
    _put_once(job["out"]["bucket"], job["out"]["key"], pdf, "application/pdf", facts)
    done = _stored(job)
    if done is None:
        raise RuntimeError("the PDF was stored and is not there")
    return done


def _rendered(job: dict[str, Any]) -> bytes:
    for name, value in job["options"].items():
        if OPTIONS.get(name) != value:
            raise BadDocument("unknown_option", f"This renderer cannot do {name} = {value!r}.")
    return render(job["html"])


def _whole(event: dict[str, Any]) -> dict[str, Any]:
    """The event itself, or the one that was too large for a call and lies in the bucket."""
    if "input" not in event:
        return event
    place = event["input"]
    body = s3.get_object(Bucket=place["bucket"], Key=place["key"])["Body"].read()
    job: dict[str, Any] = json.loads(body)
    return job


def _stored(job: dict[str, Any]) -> dict[str, Any] | None:
    """The answer about the file under the key, whoever stored it; None where there is none."""
    out = job["out"]
    try:
        head = s3.head_object(Bucket=out["bucket"], Key=out["key"])
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return None
        raise
    return {
        "job_key": job["job_key"],
        "status": "succeeded",
        "key": out["key"],
        "bytes": head["ContentLength"],
        "sha256": head["Metadata"].get("sha256", ""),
    }


def _failed(job: dict[str, Any], error: BadDocument) -> dict[str, Any]:
    """Said in the answer, and in the bucket for whoever has no answer."""
    answer = {
        "job_key": job["job_key"],
        "status": "failed",
        "error": {"code": error.code, "message": str(error)[:500]},
    }
    _put_once(job["out"]["bucket"], job["out"]["error_key"], json.dumps(answer).encode(), "application/json", {})
    return answer


def _put_once(bucket: str, key: str, body: bytes, content_type: str, facts: dict[str, str]) -> None:
    """Store where nothing is. That something is there already (412) is as good."""
    for left in reversed(range(STORE_TRIES)):
        try:
            s3.put_object(Bucket=bucket, Key=key, Body=body, ContentType=content_type, Metadata=facts, IfNoneMatch="*")
            return
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == 412:
                return
            if status != 409 or not left:
                raise


def _version(context: Any) -> str:
    return str(getattr(context, "function_version", "") or "unknown")
