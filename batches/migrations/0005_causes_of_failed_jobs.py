"""Give each job that had failed before there were causes its own: a copy of `engine/causes.py` as it was then."""

import hashlib
import re
import unicodedata

from django.db import migrations

CHUNK = 1000

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?(?:[ap]m\b|z\b|utc\b|gmt\b|[+-]\d{2}:?\d{2}))?"
#: What an id or a number is made of beside digits. Letters of scripts that part no words by spaces are left out: there
#: one digit would take the sentence with it.
_IN_WORD = r"[A-Za-z\u00c0-\u024f_.+@#%/\\~^$€£-]"

#: What differs between two failures of one cause, in the order in which it is taken out.
_VARYING = (
    (re.compile(r"</?[a-z][\w-]*\s[^<>]*>|</[a-z][\w-]*>", re.IGNORECASE), "<markup>"),
    # Words that a JSON excerpt gives as its reason are no input of ours: they lose their quotes and stay.
    (
        re.compile(r'"(error|error_code|code|reason|message|detail)"\s*:\s*"((?:[^"\\]|\\.)*)"', re.IGNORECASE),
        r"\1 \2 ",
    ),
    (re.compile(r'\\"[^"]*\\"'), "<quoted>"),
    (re.compile(r"„[^“”]*[“”]|“[^”]*”|«[^»]*»|»[^«]*«|「[^」]*」|『[^』]*』|《[^》]*》|`[^`]*`"), "<quoted>"),
    (re.compile(r"‚[^‘]*‘|(?<!\w)‘(?:[^’]|(?<=\w)’(?=\w))*’(?!\w)"), "<quoted>"),
    # A quotation may be cut off with the message; after a digit the mark means inches.
    (re.compile(r'(?<!\d)"(?:[^"\\]|\\.)*(?:"|$)'), "<quoted>"),
    (re.compile(r"(?<![\w'])'(?:[^']|(?<=\w)'(?=\w))*'(?!\w)"), "<quoted>"),
    (re.compile(r"\b(?:https?|s3|ftp|file)://[^\s<>，。]+|\bwww\.\S+", re.IGNORECASE), "<address>"),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]+\b"), "<address>"),
    (re.compile(r"(?<!\w)[a-z]:\\[^\s<>|]+", re.IGNORECASE), "<path>"),
    (
        re.compile(r"(?<![\w/])/(?:tmp|var|home|usr|opt|srv|etc|mnt|data|app|root|users|private)/[^\s<>:;,)]+", re.I),
        "<path>",
    ),
    (re.compile(r"(?<![\w/])(?:/[^\s/<>:;,()]+)+/[^\s/<>:;,()]+\.[a-z]{2,5}\b", re.IGNORECASE), "<path>"),
    (re.compile(rf"\b{_WEEKDAY}\d{{1,2}}(?:st|nd|rd|th)?[\s-]+{_MONTH},?[\s-]+\d{{2,4}}\b", re.IGNORECASE), "<n>"),
    (re.compile(rf"\b{_WEEKDAY}{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}\b", re.IGNORECASE), "<n>"),
    (re.compile(rf"\b\d{{4}}-\d{{2}}-\d{{2}}(?:[T\s]{_CLOCK})?", re.IGNORECASE), "<n>"),
    (re.compile(rf"(?<!\w){_CLOCK}", re.IGNORECASE), "<n>"),
    # Ids that need hold no digit.
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<n>"),
    (re.compile(r"\b[0-9a-f]{8,}\b", re.IGNORECASE), "<n>"),
    (re.compile(r"\b[a-z]{2,5}_(?=[a-z]*[A-Z])[A-Za-z]{8,}\b"), "<n>"),
    # A word that holds a digit is an id or a number: INV-2026-0041, job_7f3a, 12.5.
    (re.compile(rf"(?<!{_IN_WORD}){_IN_WORD}*\d(?:{_IN_WORD}|\d)*"), "<n>"),
    (re.compile(r"<n>\s?(?:[kmgt]i?b|bytes?|b|ms|s|secs?|seconds?|minutes?|hours?)\b", re.IGNORECASE), "<n>"),
    # As many as there are of them: rows 3, 7 and 12.
    (re.compile(r"(<\w+>)(?:(?:\s*[,;:/–-]\s*|\s*\b(?:and|or|to|und|et|y|e)\b\s*|\s+)+\1)+"), r"\1"),
    (re.compile(r"(<n> [^\W\d_]{2,}?)s\b"), r"\1"),
)
_SPACE = re.compile(r"\s+")
#: Words beyond this length say nothing more about the cause; a long excerpt may stand before them.
WORDS_MOST = 500
READ_MOST = 8 * WORDS_MOST


def normalised(words):
    text = unicodedata.normalize("NFKC", words[:READ_MOST])
    for pattern, placeholder in _VARYING:
        text = pattern.sub(placeholder, text)
    return _SPACE.sub(" ", text).strip().casefold()[:WORDS_MOST]


def fingerprint(failure_class, code, words):
    cause = "\n".join((failure_class, code.casefold(), normalised(words)))
    return hashlib.sha256(cause.encode(errors="replace")).hexdigest()[:16]


def name_causes(apps, schema_editor):
    Job = apps.get_model("batches", "Job")
    unnamed = Job.objects.filter(
        state__in=("failed", "unknown", "deadline_exceeded", "expired"), failure_cause=""
    ).order_by("pk")
    after = 0
    while True:
        columns = ("pk", "failure_class", "failure_code", "failure_words")
        jobs = list(unnamed.filter(pk__gt=after).only(*columns)[:CHUNK])
        if not jobs:
            return
        after = jobs[-1].pk
        for job in jobs:
            job.failure_cause = fingerprint(job.failure_class, job.failure_code, job.failure_words)
        Job.objects.bulk_update(jobs, ["failure_cause"], batch_size=CHUNK // 2)


class Migration(migrations.Migration):
    dependencies = [("batches", "0004_repair")]
    operations = [migrations.RunPython(name_causes, migrations.RunPython.noop)]
