"""Set-based writes: one guarded UPDATE for many rows with different values, which the pump's speed rests on; and
a plain INSERT of many rows.

`UPDATE … FROM (VALUES …) WHERE id and guards … RETURNING id`, the same statement on SQLite and PostgreSQL. What
comes back are the rows whose guard held, so that a stale writer learns that it was refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, models

#: Rows per statement: far under SQLite's 32,766 variables for the widest table here.
ROWS_PER_STATEMENT = 500


def guarded_update(
    model: type[models.Model],
    rows: Sequence[Mapping[str, Any]],
    *,
    guard: Sequence[str] = (),
    add: Mapping[str, int] | None = None,
) -> set[int]:
    """Update `rows` by primary key where every `guard` column still has the row's value.

    Each row holds `pk`, the guard columns under `guard:<name>`, and the columns to set; all rows name the same
    columns. `add` increments columns. Returns the primary keys that were updated.
    """
    updated: set[int] = set()
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        updated |= _update_chunk(model, rows[start : start + ROWS_PER_STATEMENT], guard, add or {})
    return updated


def insert(model: type[models.Model], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert `rows`, which all name the same columns (by field name); the other columns get their defaults.

    Several times as fast as `bulk_create`, which makes an object and an expression of each value, so that a large
    intake holds SQLite's only write lock for seconds instead of half a minute. Primary keys are not returned.
    """
    if not rows:
        return
    meta: Any = model._meta
    given = list(rows[0])
    fields = {name: meta.get_field(name) for name in given}
    defaults = [field for field in meta.concrete_fields if field.name not in fields and not field.primary_key]
    constant = [field.get_db_prep_save(field.get_default(), connection=connection) for field in defaults]
    quote = connection.ops.quote_name
    columns = [quote(field.column) for field in (*fields.values(), *defaults)]
    statement = (  # only names of our own columns are put into it; every value is a parameter
        f"INSERT INTO {quote(meta.db_table)} ({', '.join(columns)}) "  # noqa: S608 - see above
        f"VALUES ({', '.join(['%s'] * len(columns))})"
    )
    prepared = [
        [fields[name].get_db_prep_save(row[name], connection=connection) for name in given] + constant for row in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(statement, prepared)


def _update_chunk(
    model: type[models.Model], rows: Sequence[Mapping[str, Any]], guard: Sequence[str], add: Mapping[str, int]
) -> set[int]:
    meta: Any = model._meta
    columns = list(rows[0])  # "pk", "guard:<name>" and the names to set
    fields = {name: meta.pk if name == "pk" else meta.get_field(name.removeprefix("guard:")) for name in columns}
    aliases = {name: f"c{index}" for index, name in enumerate(columns)}
    quote = connection.ops.quote_name

    def given(name: str) -> str:
        # PostgreSQL reads a column of VALUES as text where no row shows its type; SQLite has no types to get wrong.
        if connection.vendor != "postgresql":
            return f"v.{aliases[name]}"
        return f"CAST(v.{aliases[name]} AS {_column_type(fields[name])})"

    set_names = [name for name in columns if name != "pk" and not name.startswith("guard:")]
    assignments = [f"{quote(fields[name].column)} = {given(name)}" for name in set_names]
    for name, by in add.items():
        column = quote(meta.get_field(name).column)
        assignments.append(f"{column} = t.{column} + {int(by)}")
    conditions = [f"t.{quote(meta.pk.column)} = {given('pk')}"]
    conditions += [f"t.{quote(fields[f'guard:{name}'].column)} = {given(f'guard:{name}')}" for name in guard]
    placeholders = ", ".join([f"({', '.join(['%s'] * len(columns))})"] * len(rows))
    statement = (  # only names of our own columns are put into it; every value is a parameter
        f"WITH v({', '.join(aliases.values())}) AS (VALUES {placeholders}) "  # noqa: S608 - see above
        f"UPDATE {quote(meta.db_table)} AS t SET {', '.join(assignments)} "
        f"FROM v WHERE {' AND '.join(conditions)} RETURNING {quote(meta.pk.column)}"
    )
    params = [fields[name].get_db_prep_save(row[name], connection=connection) for row in rows for name in columns]
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return {found[0] for found in cursor.fetchall()}


def _column_type(field: Any) -> str:
    """What PostgreSQL calls the column's type, without `serial` and its kin."""
    return str(field.target_field.rel_db_type(connection) if field.is_relation else field.rel_db_type(connection))
