"""Baseline (ii): one django-q2 task per step (submit, poll, download), a Django project of its own."""

from __future__ import annotations
