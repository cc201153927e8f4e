"""One row per document: what a careful task-per-step design keeps."""

from __future__ import annotations

from django.db import models


class Document(models.Model):
    run = models.CharField(max_length=40, db_index=True)
    number = models.IntegerField()
    state = models.CharField(max_length=10, default="pending")
    key = models.CharField(max_length=64, unique=True)
    job_id = models.CharField(max_length=100, blank=True, default="")
    url = models.CharField(max_length=300, blank=True, default="")
    polls = models.IntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        app_label = "task_per_step"

    def __str__(self) -> str:
        return f"{self.run} {self.number}"
