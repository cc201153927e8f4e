"""Signing in. Too many wrong passwords get a page of ours instead of django-axes' bare sentence."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


class SignIn(LoginView):
    template_name = "batches/sign_in.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        if getattr(request, "axes_locked_out", False):
            # The middleware would replace the answer as long as this is set; the lock itself is a row of axes.
            request.axes_locked_out = False  # type: ignore[attr-defined] # set by django-axes
            return locked_out(request)
        return response


def locked_out(request: HttpRequest) -> HttpResponse:
    return render(request, "batches/locked_out.html", status=429)
