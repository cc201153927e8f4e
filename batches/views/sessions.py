"""Signing in. Too many wrong passwords get a page of ours instead of django-axes' bare sentence."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import render
from django.urls import reverse


class SignIn(LoginView):
    template_name = "batches/sign_in.html"
    redirect_authenticated_user = True

    def get_context_data(self, **given: Any) -> dict[str, Any]:
        context = super().get_context_data(**given)
        if settings.OIDC is not None:
            where = reverse("openid_connect_login", args=[settings.OIDC["app"]["provider_id"]])
            wanted = self.get_redirect_url()
            context["other"] = {
                "name": settings.OIDC["name"],
                "url": f"{where}?{urlencode({'next': wanted})}" if wanted else where,
            }
        return context | {"takes_passwords": settings.PASSWORD_SIGN_IN}

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.PASSWORD_SIGN_IN:
            return HttpResponseNotAllowed(["GET"])
        response = super().post(request, *args, **kwargs)
        if getattr(request, "axes_locked_out", False):
            # The middleware would replace the answer as long as this is set; the lock itself is a row of axes.
            request.axes_locked_out = False  # type: ignore[attr-defined] # set by django-axes
            return locked_out(request)
        return response


def locked_out(request: HttpRequest) -> HttpResponse:
    return render(request, "batches/locked_out.html", status=429)
