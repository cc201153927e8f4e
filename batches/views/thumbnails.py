"""The first page of a stored PDF as a picture, beside its name. Only for whoever may see the document itself."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe

from batches import rights, storage
from batches.engine import thumbnails
from batches.models import Artifact
from batches.views.access import SignedInRequest, document_or_404, refuse_without
from batches.views.stored import store_away


@login_required
@require_safe
def document_thumbnail(request: SignedInRequest, public_id: str, number: int) -> HttpResponse:
    """A PNG. The browser keeps it, and asks each time whether it may still show it: that draws nothing."""
    document = document_or_404(request.user, public_id)
    refuse_without(request, rights.VIEW_CONTENT, document.workspace)
    stored = Artifact.objects.filter(local_deleted_at=None, missing_at=None)
    artifact = get_object_or_404(stored, version__document=document, version__number=number)
    etag = f'"{artifact.sha256[:32]}-{thumbnails.WIDTH}"'
    response = get_conditional_response(request, etag=etag)
    if response is None:
        try:
            response = HttpResponse(
                thumbnails.draw(artifact.storage_key, storage.open_store(settings.STORAGE_URL)),
                content_type="image/png",
            )
        except thumbnails.Busy:
            return HttpResponse(status=503, headers={"Retry-After": "5"})
        except (thumbnails.NoPicture, storage.ObjectMissing) as error:
            raise Http404("There is no picture of it.") from error
        except storage.StoreError:
            return store_away(request)
    response["ETag"] = etag
    response["Cache-Control"] = "private, no-cache"
    response["X-Content-Type-Options"] = "nosniff"
    return response
