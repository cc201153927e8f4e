"""The Django admin over every model. Evidence is read-only, secrets can be set and never seen, and nothing here bills:
django-q2's own admin, which can send a task again, is taken out.

Django imports this package by its name (autodiscovery); importing the rooms below registers their models.
"""

from __future__ import annotations

from django.contrib import admin
from django_q import admin as queue_admin

from batches.admin import accounts, people, proof, records, work

__all__ = ["accounts", "people", "proof", "records", "work"]

admin.site.site_header = "RelayPDF Batches"
admin.site.site_title = "RelayPDF Batches"
admin.site.index_title = "Administration"

# Imported above, so that it has registered its models before they are taken out again.
for queue_model in [model for model in admin.site._registry if model.__module__.startswith(queue_admin.__package__)]:
    admin.site.unregister(queue_model)
