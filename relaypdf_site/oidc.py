"""Signing in through an OpenID Connect issuer, with django-allauth. Loaded only where `OIDC_ISSUER` is set.

Owns what is ours about it: every id token's signature is checked, nobody is linked to an existing person by what an
issuer says of them, a new person arrives without a workspace, and whatever goes wrong leads back to the sign-in page
with a sentence. docs/sign-in.md says how to set it up.
"""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.cache import never_cache
from requests import RequestException  # noqa: TID251 - of allauth's HTTP client; its failures end here

from batches import selectors
from batches.engine import audit
from batches.engine.audit import By
from batches.views import sessions

PROVIDER = "oidc"
NOT_SIGNED_IN = "You were not signed in: the sign-in service did not confirm who you are. Try again."
CANCELLED = "You were not signed in: it was cancelled at the sign-in service."
NOT_ACTIVE = "Your account here is not active. Ask an administrator."
NO_WORKSPACE = (
    "You are signed in as {name}, and belong to no workspace yet, so there is nothing for you to see. Ask an "
    "administrator to give you a role."
)


class Issuer(OpenIDConnectOAuth2Adapter):  # type: ignore[misc] # allauth has no types
    """As allauth's, but an id token counts only with a signature of the issuer's keys, and only for its own subject."""

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **told: Any) -> Any:
        provider, answer = self.get_provider(), told["response"]
        try:
            proven = provider.verify_token(request, {"id_token": answer.get("id_token")})
        except (ValidationError, KeyError, ValueError) as error:
            raise OAuth2Error("The id token is not the issuer's.") from error
        said = self._fetch_user_info(token.token)
        if str(said.get("sub")) != proven.account.uid:
            raise OAuth2Error("The id token and the user info are about different people.")
        return provider.sociallogin_from_response(request, {"userinfo": said})


class People(DefaultSocialAccountAdapter):  # type: ignore[misc] # as above
    """Whom a sign-in makes, and where one that fails leads."""

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user = super().save_user(request, sociallogin, form)
        by = By(user, user.get_username(), request.META.get("REMOTE_ADDR", ""))
        audit.record(
            "add_user",
            subject=f"user {user.get_username()}",
            workspace=None,
            by=by,
            now=timezone.now(),
            facts={"signed_in_through": sociallogin.account.provider},
        )
        return user

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        raise ImmediateHttpResponse(_back(request, CANCELLED if error == "cancelled" else NOT_SIGNED_IN))


class Accounts(DefaultAccountAdapter):  # type: ignore[misc] # as above
    """How the session begins. Its backend knows rights and no passwords of its own."""

    def login(self, request: HttpRequest, user: Any) -> None:
        user.backend = settings.RIGHTS_BACKEND
        super().login(request, user)
        sessions.begin(request, now=timezone.now())
        if not selectors.visible_workspaces(user).exists():
            messages.info(request, NO_WORKSPACE.format(name=user.get_username()))

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        return _back(request, NOT_ACTIVE)

    def add_message(self, *args: Any, **told: Any) -> None:
        """The page itself says who is signed in."""


def _back(request: HttpRequest, words: str) -> HttpResponse:
    messages.error(request, words)
    return redirect("login")


@never_cache
def start(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Off to the issuer, with state and PKCE kept in the session."""
    answer: HttpResponseBase = _answered(OAuth2LoginView, request, provider_id)
    return answer


@never_cache
def back(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Back from it: the code is exchanged, the tokens are checked, the session begins with a new key."""
    answer: HttpResponseBase = _answered(OAuth2CallbackView, request, provider_id)
    return answer


def _answered(view: Any, request: HttpRequest, provider_id: str) -> Any:
    if provider_id != PROVIDER:
        raise Http404("No such way to sign in.")
    try:
        return view.adapter_view(Issuer(request, PROVIDER))(request)
    except (RequestException, KeyError, ValueError):
        return _back(request, NOT_SIGNED_IN)
