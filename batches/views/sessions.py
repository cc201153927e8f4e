"""Signing in and out, and how long a session lives. Too many wrong passwords get a page of ours instead of django-axes'
bare sentence.

A new session key at sign-in, and the end of every session at a change of password or when a person is deactivated, are
Django's own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import SESSION_KEY, logout
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from batches.views.access import SignedInRequest, record

#: In the session: when it began and when it was last used, in seconds.
BEGAN_AT, USED_AT = "began_at", "used_at"
#: Its use is written down at most this often, so that looking at pages stays reading.
NOTED_EVERY_SECONDS = 60
ENDED = "You were signed out, because your session had run out. Sign in to go on where you were."


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
        if request.user.is_authenticated:
            begin(request, now=timezone.now())
        if getattr(request, "axes_locked_out", False):
            # The middleware would replace the answer as long as this is set; the lock itself is a row of axes.
            request.axes_locked_out = False  # type: ignore[attr-defined] # set by django-axes
            return locked_out(request)
        return response


def locked_out(request: HttpRequest) -> HttpResponse:
    answer = render(request, "batches/locked_out.html", status=429)
    answer["Retry-After"] = str(round(settings.AXES_COOLOFF_TIME * 3600))
    return answer


def begin(request: HttpRequest, *, now: datetime) -> None:
    """Somebody proved who they are: the session's time begins anew."""
    request.session[BEGAN_AT] = request.session[USED_AT] = now.timestamp()


class SessionRules:
    """Middleware: a session ends a while after it was last used, and some hours after it began, whatever is done in it.

    What a page fetches by itself to stay live is no use of it, or a forgotten tab would keep it open for ever.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.SESSION_COOKIE_NAME in request.COOKIES and SESSION_KEY in request.session:
            _keep_or_end(request, now=timezone.now())
        return self.get_response(request)


def _keep_or_end(request: HttpRequest, *, now: datetime) -> None:
    session, instant = request.session, now.timestamp()
    began, used = session.get(BEGAN_AT), session.get(USED_AT)
    if began is None or used is None:
        begin(request, now=now)
        return
    is_by_itself = "HX-Request" in request.headers
    if instant - began > settings.SESSION_COOKIE_AGE or instant - used > settings.SESSION_IDLE_SECONDS:
        logout(request)
        if not is_by_itself:
            messages.info(request, ENDED)
    elif not is_by_itself and instant - used >= NOTED_EVERY_SECONDS:
        session[USED_AT] = instant


@login_required
@require_POST
def sign_out_everywhere(request: SignedInRequest) -> HttpResponse:
    """End every session of the person, on every device."""
    record(request, "sign_out_everywhere", f"user {request.user.get_username()}", None)
    end_sessions(request.user, now=timezone.now())
    logout(request)
    messages.info(request, "You were signed out here and on every other device.")
    return redirect("login")


def end_sessions(user: User, *, now: datetime) -> None:
    """Sessions name their person in what only their own code reads, so all living ones are looked through: staff have
    hundreds, and this is pressed about once a year."""
    living = Session.objects.filter(expire_date__gte=now).iterator(chunk_size=500)
    ended = [each.pk for each in living if each.get_decoded().get(SESSION_KEY) == str(user.pk)]
    Session.objects.filter(pk__in=ended).delete()


def form_too_old(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form of another session: somebody signed in again meanwhile. An upload lands on its form again."""
    has_cookie = settings.CSRF_COOKIE_NAME in request.COOKIES  # without, the next try would end here as well
    if has_cookie and request.path == reverse("batches:batch_new") and request.user.is_authenticated:
        return redirect(f"{request.path}?again=1")
    return render(request, "403_csrf.html", status=403)
