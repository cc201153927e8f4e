"""Every switch of the sandbox, with its default: what the vendor leaves open, and what may go wrong.

Values only, checked when they come in. Nested JSON objects name them (`{"idempotency": {"replay": …}}`), and so do
dotted keys (`idempotency.replay`). The README says what each means.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

DEFAULT_API_KEY = "pdf_live_sandbox"


class BadSwitch(ValueError):
    """A switch does not exist or has a value that can't be used. `str()` is a sentence."""


@dataclass(frozen=True)
class AccountSwitches:
    """`api_keys` maps each accepted key to the account that it opens."""

    api_keys: dict[str, str] = field(default_factory=lambda: {DEFAULT_API_KEY: "main"})
    suspended: bool = False
    plan: str = "sandbox"
    rate_tier: str = "sandbox"
    initial_microdollars: int = 1_000_000_000
    millicents_per_dollar: int = 1000
    price_per_job_microdollars: int = 400
    price_per_second_microdollars: int = 300
    ceiling_status: int = 400
    ceiling_code: str = "invalid_request"


@dataclass(frozen=True)
class IdempotencySwitches:
    retention_seconds: float = 86_400.0
    age_from: Literal["acceptance", "first_sight"] = "acceptance"
    replay: Literal["same_id", "completed_body"] = "same_id"
    conflict_status: int = 409
    conflict_code: str = "idempotency_conflict"
    in_flight: Literal["same_id", "refused"] = "same_id"
    in_flight_status: int = 409
    in_flight_code: str = "idempotency_conflict"
    in_flight_until: Literal["answered", "finished"] = "answered"
    after_failure: Literal["replay", "new_job"] = "replay"
    after_file_gone: Literal["replay", "new_job"] = "replay"
    refusals: Literal["forgotten", "stored"] = "forgotten"
    compare: Literal["bytes", "json"] = "bytes"
    sync_modes: Literal["honoured", "ignored", "refused"] = "honoured"


@dataclass(frozen=True)
class LimitSwitches:
    """`windows` holds [requests, seconds] pairs; none means no limit."""

    windows: tuple[tuple[int, float], ...] = ()
    tolerance_seconds: float = 0.0
    count_polls: bool = False
    retry_after: Literal["seconds", "http_date", "missing"] = "seconds"
    max_body_bytes: int = 32 << 20
    max_source_bytes: int = 10 << 20
    max_upload_bytes: int = 32 << 20


@dataclass(frozen=True)
class JobSwitches:
    """`min_seconds` .. `max_seconds`: how long a job takes at least, drawn evenly from between the two."""

    min_seconds: float = 0.0
    max_seconds: float = 0.0
    concurrency: int = 2
    accepted_word: str = "processing"
    waiting_word: str = "processing"
    running_word: str = "processing"
    sync_wait_seconds: float = 90.0
    unknown_fields: Literal["ignored", "refused"] = "ignored"
    wall_seconds: float = 60.0
    cpu_seconds: int = 30
    memory_mib: int = 1536
    output_mib: int = 64
    pages: int = 5000


@dataclass(frozen=True)
class TemplateSwitches:
    """Templates that the account keeps: `published` maps each to its newest version, `reads` to the paths that it
    needs a value for when a submission is `strict`."""

    published: dict[str, int] = field(default_factory=lambda: {"sandbox-table": 3})
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class FileSwitches:
    ttl_seconds: float = 86_400.0
    ttl_from: Literal["completion", "submission"] = "completion"
    expired_answer: Literal["404", "410", "403_xml"] = "404"
    delete_reply: Literal["ok", "204"] = "ok"


@dataclass(frozen=True)
class WebhookSwitches:
    enabled: bool = True
    job_id_field: Literal["data.id", "id", "jobId", "data.jobId", "none"] = "data.id"
    event_id: bool = False
    created_status: int = 201
    sync_modes: bool = True
    allow_loopback_http: bool = True
    timeout_seconds: float = 10.0
    retry_seconds: tuple[float, ...] = (5.0, 30.0, 120.0, 600.0, 3600.0)
    callback_signature: Literal["none", "first_endpoint"] = "none"


@dataclass(frozen=True)
class Switches:
    account: AccountSwitches = field(default_factory=AccountSwitches)
    idempotency: IdempotencySwitches = field(default_factory=IdempotencySwitches)
    limits: LimitSwitches = field(default_factory=LimitSwitches)
    jobs: JobSwitches = field(default_factory=JobSwitches)
    templates: TemplateSwitches = field(default_factory=TemplateSwitches)
    files: FileSwitches = field(default_factory=FileSwitches)
    webhooks: WebhookSwitches = field(default_factory=WebhookSwitches)
    faults: tuple[dict[str, Any], ...] = ()
    seed: int = 0


def as_json(switches: Switches) -> dict[str, Any]:
    """The switches as nested JSON objects; `changed` reads the same form."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(switches)))
    return plain


def changed(switches: Switches, patch: dict[str, Any]) -> Switches:
    """`switches` with the values of `patch` put in. Lists and `api_keys` are replaced whole.

    Raises BadSwitch, naming the switch; nothing is changed then.
    """
    if not isinstance(patch, dict):
        raise BadSwitch("switches must be one JSON object")
    for key, value in patch.items():
        group, _, name = key.partition(".")
        switches = _put(switches, group, {name: value} if name else value)
    if switches.jobs.max_seconds and switches.jobs.max_seconds < switches.jobs.min_seconds:
        raise BadSwitch("jobs.max_seconds must not be below jobs.min_seconds (0 means: the same)")
    return switches


def parse_assignment(text: str) -> dict[str, Any]:
    """`idempotency.retention_seconds=5` as a patch; the value is JSON, or else taken as text."""
    key, equals, raw = text.partition("=")
    if not equals:
        raise BadSwitch(f"--set takes key=value, such as jobs.min_seconds=1, not {text!r}")
    try:
        value = json.loads(raw)
    except ValueError:
        value = raw
    return {key.strip(): value}


def flattened(patch: dict[str, Any]) -> dict[str, Any]:
    """A patch with dotted names instead of nested objects."""
    flat: dict[str, Any] = {}
    for group, value in patch.items():
        if isinstance(value, dict):
            flat.update({f"{group}.{name}": each for name, each in value.items()})
        else:
            flat[group] = value
    return flat


def differences(switches: Switches) -> dict[str, Any]:
    """The switches that are not at their default, by dotted name."""
    mine, default = as_json(switches), as_json(Switches())
    found: dict[str, Any] = {}
    for group, values in mine.items():
        if isinstance(values, dict):
            found.update({f"{group}.{name}": value for name, value in values.items() if value != default[group][name]})
        elif values != default[group]:
            found[group] = values
    return found


def _put(switches: Switches, group: str, value: Any) -> Switches:
    hints = typing.get_type_hints(Switches)
    if group not in hints:
        raise BadSwitch(f"there is no switch {group!r}; the groups are {', '.join(hints)}")
    if not dataclasses.is_dataclass(hints[group]):
        return dataclasses.replace(switches, **{group: _checked(value, hints[group], group)})
    if not isinstance(value, dict):
        raise BadSwitch(f"{group} must be an object of switches")
    current = getattr(switches, group)
    own = typing.get_type_hints(type(current))
    for name in value:
        if name not in own:
            raise BadSwitch(f"there is no switch '{group}.{name}'; {group} has {', '.join(own)}")
    checked = {name: _checked(given, own[name], f"{group}.{name}") for name, given in value.items()}
    return dataclasses.replace(switches, **{group: dataclasses.replace(current, **checked)})


def _checked(value: Any, hint: Any, name: str) -> Any:
    """`value` as `hint` wants it. Numbers must not be negative."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if str(value) in arguments:
            return str(value)
        raise BadSwitch(f"{name} must be one of {', '.join(map(str, arguments))}, not {value!r}")
    if origin is tuple and isinstance(value, list | tuple):
        if arguments[-1] is Ellipsis:
            return tuple(_checked(item, arguments[0], f"{name}[{i}]") for i, item in enumerate(value))
        if len(value) == len(arguments):
            return tuple(_checked(item, each, name) for item, each in zip(value, arguments, strict=True))
    if origin is dict and isinstance(value, dict):
        return {str(key): _checked(item, arguments[1], f"{name}.{key}") for key, item in value.items()}
    if hint is Any:
        return value
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if hint in (str, bool) and isinstance(value, hint):
        return value
    raise BadSwitch(f"{name} must be {_wanted(hint)}, not {value!r}")


def _wanted(hint: Any) -> str:
    words = {float: "a number from 0 up", int: "a whole number from 0 up", str: "text", bool: "true or false"}
    if isinstance(hint, types.GenericAlias):
        return "an object" if typing.get_origin(hint) is dict else "a list"
    return words.get(hint, "something else")
