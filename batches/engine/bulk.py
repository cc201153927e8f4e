"""Set-based writes: one guarded UPDATE for many rows with different values, which the pump's speed rests on; and
plain INSERTs of many rows. Owns also how much one statement is given at once.

`UPDATE … FROM rows WHERE id and guards … RETURNING id`, on SQLite and PostgreSQL. What comes back are the rows whose
guard held, so that a stale writer learns that it was refused. SQLite is given the rows as `VALUES`; PostgreSQL as one
JSON text, since its driver takes microseconds over every placeholder (docs/decisions/0028-rows-as-one-json-text.md).
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from django.db import connection, connections, models

#: Rows per statement: far under SQLite's 32,766 variables for the widest table here.
ROWS_PER_STATEMENT = 500
#: Values in one `IN (…)`: as many as both databases plan well.
VALUES_PER_LIST = 1000

#: Fields and values that reach the driver unchanged: a pump writes thousands of them a second.
_PLAIN = frozenset({int, str, type(None)})
_AS_THEY_ARE = frozenset(
    {
        models.BigAutoField,
        models.CharField,
        models.ForeignKey,
        models.IntegerField,
        models.OneToOneField,
        models.PositiveBigIntegerField,
        models.PositiveIntegerField,
        models.BigIntegerField,
        models.PositiveSmallIntegerField,
        models.TextField,
    }
)

T = TypeVar("T")


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`items` in order, at most `size` at a time; nothing for none."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def guarded_update(
    model: type[models.Model],
    rows: Sequence[Mapping[str, Any]],
    *,
    guard: Sequence[str] = (),
) -> set[int]:
    """Update `rows` by primary key where every `guard` column still has the row's value.

    Each row holds `pk`, the guard columns under `guard:<name>`, and the columns to set; all rows name the same
    columns. Returns the primary keys that were updated.
    """
    updated: set[int] = set()
    for chunk in chunks(rows, ROWS_PER_STATEMENT):
        updated |= _update_chunk(model, chunk, guard)
    return updated


def insert(model: type[models.Model], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert `rows`, which all name the same columns (by field name); the other columns get their defaults.

    Several times as fast as `bulk_create`, which makes an object and an expression of each value, so that a large
    intake holds SQLite's only write lock for seconds instead of half a minute. Primary keys are not returned.
    """
    if not rows:
        return
    if connection.vendor == "sqlite":
        columns = _Columns.of(model, rows[0])
        with connection.cursor() as cursor:  # one prepared statement, stepped in C
            cursor.executemany(f"{columns.head} VALUES {columns.placeholders}", columns.prepared(rows))
        return
    for chunk in chunks(rows, ROWS_PER_STATEMENT):
        _insert_chunk(model, chunk)


def insert_returning(model: type[models.Model], rows: Sequence[Mapping[str, Any]], *, key: str) -> dict[Any, int]:
    """Insert as `insert` does; returns the new primary keys by each row's value of the column `key`."""
    made: dict[Any, int] = {}
    for chunk in chunks(rows, ROWS_PER_STATEMENT):
        made |= dict(_insert_chunk(model, chunk, returning=key))
    return made


def _insert_chunk(
    model: type[models.Model], rows: Sequence[Mapping[str, Any]], *, returning: str | None = None
) -> list[tuple[Any, int]]:
    columns = _Columns.of(model, rows[0])
    params: list[Any]
    if connection.vendor == "postgresql":  # the rows are one parameter, and each default is one
        values = [_out_of_json(f"v.c{index}", field) for index, field in enumerate(columns.given.values())]
        values += [f"CAST(%s AS {_column_type(field)})" for field in columns.defaults]
        source = _recordset(tuple(columns.given.values()))
        statement = f"{columns.head} SELECT {', '.join(values)} FROM {source}"  # noqa: S608 - as for `_Columns.head`
        params = [*columns.constant, _as_json(columns.given, rows)]
    else:
        statement = f"{columns.head} VALUES {', '.join([columns.placeholders] * len(rows))}"
        params = [value for values in columns.prepared(rows) for value in values]
    if returning is not None:
        meta: Any = model._meta
        quote = connection.ops.quote_name
        statement += f" RETURNING {quote(meta.get_field(returning).column)}, {quote(meta.pk.column)}"
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if returning is not None else []


@dataclass(frozen=True)
class _Columns:
    """What an INSERT names: the fields that its rows give, by name, and the others with their defaults."""

    head: str
    """`INSERT INTO table (columns)`, of which only names of our own are part; every value is a parameter."""
    given: Mapping[str, Any]
    defaults: Sequence[Any]
    constant: list[Any]
    """The defaults as the database takes them."""

    @classmethod
    def of(cls, model: type[models.Model], row: Mapping[str, Any]) -> _Columns:
        meta: Any = model._meta
        given = {name: meta.get_field(name) for name in row}
        named = set(given.values())
        defaults = [field for field in meta.concrete_fields if field not in named and not field.primary_key]
        constant = [field.get_db_prep_save(field.get_default(), connection=connection) for field in defaults]
        quote = connection.ops.quote_name
        columns = [quote(field.column) for field in (*given.values(), *defaults)]
        return cls(f"INSERT INTO {quote(meta.db_table)} ({', '.join(columns)})", given, defaults, constant)

    @property
    def placeholders(self) -> str:
        """A row of `VALUES`."""
        return f"({', '.join(['%s'] * (len(self.given) + len(self.defaults)))})"

    def prepared(self, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        """The values of each row, as the database takes them."""
        ways = [(name, _way_in(field)) for name, field in self.given.items()]
        return [[way(row[name]) for name, way in ways] + self.constant for row in rows]


@lru_cache(maxsize=200)
def _recordset(fields: tuple[Any, ...]) -> str:
    """Rows for a FROM, `v` with the columns c0, c1, …, out of the JSON text that is its one parameter. A text of any
    length is taken: what is too long for its column is the statement's own to refuse."""
    types = [
        "text" if isinstance(field, models.CharField | models.BinaryField) else _column_type(field) for field in fields
    ]
    named = ", ".join(f"c{index} {kind}" for index, kind in enumerate(types))
    return f"json_to_recordset(%s::json) AS v({named})"


def _out_of_json(column: str, field: Any) -> str:
    return f"decode({column}, 'base64')" if isinstance(field, models.BinaryField) else column


def _as_json(fields: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    ways = [(name, f"c{index}", _way_into_json(field)) for index, (name, field) in enumerate(fields.items())]
    return json.dumps([{alias: way(row[name]) for name, alias, way in ways} for row in rows], separators=(",", ":"))


def _way_into_json(field: Any) -> Callable[[Any], Any]:
    """As `_way_in`, to where PostgreSQL reads the column's type out of a JSON text."""
    if isinstance(field, models.JSONField):
        if field.encoder is None:
            return lambda value: value
        return lambda value: json.loads(json.dumps(value, cls=field.encoder))
    way = _way_in(field)
    if isinstance(field, models.BinaryField):
        return lambda value: None if value is None else b64encode(bytes(value)).decode()

    def plain(value: Any) -> Any:
        given = way(value)
        if isinstance(given, date):  # an instant is one, too
            return given.isoformat()
        return str(given) if isinstance(given, Decimal) else given

    return plain


def _way_in(field: Any) -> Callable[[Any], Any]:
    """How a value of the field goes to the database. What needs no change is not sent through Django's layers."""

    database = connections[connection.alias]  # itself: the proxy looks it up anew at every touch

    def save(value: Any) -> Any:
        return field.get_db_prep_save(value, connection=database)

    def instant(value: Any) -> Any:
        if value is None or getattr(value, "tzinfo", None) is not UTC:
            return save(value)
        # What Django writes for an instant in UTC: SQLite has no type for it and is given its text.
        return str(value.replace(tzinfo=None)) if database.vendor == "sqlite" else value

    if type(field) is models.DateTimeField:
        return instant
    if type(field) is models.JSONField and field.encoder is None and database.vendor == "sqlite":
        return lambda value: None if value is None else json.dumps(value)  # what Django writes there
    if type(field) not in _AS_THEY_ARE:
        return save
    return lambda value: value if type(value) in _PLAIN else save(value)


def _update_chunk(model: type[models.Model], rows: Sequence[Mapping[str, Any]], guard: Sequence[str]) -> set[int]:
    meta: Any = model._meta
    columns = list(rows[0])  # "pk", "guard:<name>" and the names to set
    fields = {name: meta.pk if name == "pk" else meta.get_field(name.removeprefix("guard:")) for name in columns}
    aliases = {name: f"c{index}" for index, name in enumerate(columns)}
    quote = connection.ops.quote_name

    def given(name: str) -> str:
        # PostgreSQL reads a column of VALUES as text where no row shows its type; SQLite has no types to get wrong.
        if connection.vendor != "postgresql":
            return f"v.{aliases[name]}"
        return f"CAST({_out_of_json(f'v.{aliases[name]}', fields[name])} AS {_column_type(fields[name])})"

    set_names = [name for name in columns if name != "pk" and not name.startswith("guard:")]
    assignments = [f"{quote(fields[name].column)} = {given(name)}" for name in set_names]
    conditions = [f"t.{quote(meta.pk.column)} = {given('pk')}"]
    conditions += [f"t.{quote(fields[f'guard:{name}'].column)} = {given(f'guard:{name}')}" for name in guard]
    if connection.vendor == "postgresql":
        before, source = "", _recordset(tuple(fields.values()))
        params: list[Any] = [_as_json(fields, rows)]
    else:
        placeholders = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * len(rows))
        before, source = f"WITH v({', '.join(aliases.values())}) AS (VALUES {placeholders}) ", "v"
        ways = [(name, _way_in(fields[name])) for name in columns]
        params = [way(row[name]) for row in rows for name, way in ways]
    statement = (  # only names of our own columns are put into it; every value is a parameter
        f"{before}UPDATE {quote(meta.db_table)} AS t SET {', '.join(assignments)} "  # noqa: S608 - see above
        f"FROM {source} WHERE {' AND '.join(conditions)} RETURNING {quote(meta.pk.column)}"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return {found[0] for found in cursor.fetchall()}


def _column_type(field: Any) -> str:
    """What PostgreSQL calls the column's type, without `serial` and its kin."""
    return str(field.target_field.rel_db_type(connection) if field.is_relation else field.rel_db_type(connection))
