"""Where every address begins."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from batches.views.design import design

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/design/", admin.site.admin_view(design), name="design"),
    path("admin/", admin.site.urls),
    path("", include("batches.urls")),
]

if settings.OIDC is not None:
    from relaypdf_site import oidc

    # Under the names that django-allauth reverses; of its other pages none is here.
    urlpatterns += [
        path("sign-in/<str:provider_id>/", oidc.start, name="openid_connect_login"),
        path("sign-in/<str:provider_id>/back/", oidc.back, name="openid_connect_callback"),
    ]
