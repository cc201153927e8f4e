"""Addresses of the pages, the API and the health checks."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver

app_name = "batches"
urlpatterns: list[URLPattern | URLResolver] = []
