"""Addresses of the pages, the API and the health checks."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path, re_path, register_converter
from django.urls.converters import IntConverter, StringConverter
from django.utils.functional import lazy
from django.views.generic import RedirectView

from batches.api.batches import api, not_found
from batches.views import (
    account_changes,
    account_settings,
    accounts,
    across,
    audit,
    batch_list,
    batches,
    bulk_actions,
    corrections,
    demonstration,
    documents,
    downloads,
    drafts,
    exports,
    failed,
    health,
    help,
    home,
    inbox,
    new_batch,
    notices,
    previews,
    reconcile,
    retention,
    rights,
    running,
    saved_views,
    sessions,
    template_versions,
    templates,
    thumbnails,
    verbs,
    versions,
    vitals,
    webhooks,
)


class PublicId(StringConverter):
    """An id as `engine/keys.py` makes them; anything else, NUL included, is no address of ours."""

    regex = "[A-Za-z0-9_-]{1,40}"


class VersionNumber(IntConverter):
    regex = "[1-9][0-9]{0,8}"


register_converter(PublicId, "id")
register_converter(VersionNumber, "version")

pages: list[URLPattern | URLResolver] = [
    path("", home.home, name="home"),
    path("live/", home.home_live, name="home_live"),
    path("demo/", demonstration.demo_start, name="demo_start"),
    path("sample-manifest.csv", demonstration.sample_manifest, name="sample_manifest"),
    path("failed/", failed.failed_list, name="failed_list"),
    path("failed/live/", failed.failed_live, name="failed_live"),
    path("failed/plan/", failed.failed_plan, name="failed_plan"),
    path("failed/items.csv", failed.failed_csv, name="failed_csv"),
    path("actions/", across.across_list, name="across_list"),
    path("actions/live/", across.across_list_live, name="across_list_live"),
    path("actions/<id:action_id>/", bulk_actions.action_detail, name="across_detail"),
    path("actions/<id:action_id>/live/", bulk_actions.action_live, name="across_live"),
    path("actions/<id:action_id>/confirm/", bulk_actions.action_confirm, name="across_confirm"),
    path("actions/<id:action_id>/abort/", bulk_actions.action_abort, name="across_abort"),
    path("actions/<id:action_id>/items.csv", bulk_actions.action_items, name="across_items"),
    path("views/<slug:page>/", saved_views.view_save, name="view_save"),
    path("views/<slug:page>/<int:key>/", saved_views.view_change, name="view_change"),
    path("batches/", batch_list.batch_list, name="batch_list"),
    path("batches/live/", batch_list.batch_list_live, name="batch_list_live"),
    path("new/", new_batch.batch_new, name="batch_new"),
    path("drafts/", drafts.draft_list, name="draft_list"),
    path("drafts/<id:public_id>/", drafts.draft_detail, name="draft_detail"),
    path("drafts/<id:public_id>/rows/<int:number>/", previews.draft_row, name="draft_row"),
    path("drafts/<id:public_id>/live/", drafts.draft_live, name="draft_live"),
    path("drafts/<id:public_id>/choose/", drafts.draft_choose, name="draft_choose"),
    path("drafts/<id:public_id>/check/", drafts.draft_check, name="draft_check"),
    path("drafts/<id:public_id>/start/", drafts.draft_start, name="draft_start"),
    path("drafts/<id:public_id>/discard/", drafts.draft_discard, name="draft_discard"),
    path("batches/<id:public_id>/", batches.batch_detail, name="batch_detail"),
    path("batches/<id:public_id>/running/", running.batch_running, name="batch_running"),
    path("batches/<id:public_id>/release/", running.batch_release, name="batch_release"),
    path("batches/<id:public_id>/correct/", corrections.batch_correct, name="batch_correct"),
    path("batches/<id:public_id>/left-out.csv", downloads.batch_left_out, name="batch_left_out"),
    path("batches/<id:public_id>/live/", batches.batch_live, name="batch_live"),
    path("batches/<id:public_id>/actions/", bulk_actions.action_list, name="action_list"),
    path("batches/<id:public_id>/actions/plan/", bulk_actions.action_plan, name="action_plan"),
    path("batches/<id:public_id>/actions/<id:action_id>/", bulk_actions.action_detail, name="action_detail"),
    path("batches/<id:public_id>/actions/<id:action_id>/live/", bulk_actions.action_live, name="action_live"),
    path("batches/<id:public_id>/actions/<id:action_id>/confirm/", bulk_actions.action_confirm, name="action_confirm"),
    path("batches/<id:public_id>/actions/<id:action_id>/abort/", bulk_actions.action_abort, name="action_abort"),
    path("batches/<id:public_id>/actions/<id:action_id>/items.csv", bulk_actions.action_items, name="action_items"),
    path("batches/<id:public_id>/archive/", downloads.batch_archive, name="batch_archive"),
    path("batches/<id:public_id>/results.<str:format>", downloads.batch_results, name="batch_results"),
    path("batches/<id:public_id>/failed.csv", downloads.batch_failed, name="batch_failed"),
    path("batches/<id:public_id>/manifest/", downloads.batch_manifest, name="batch_manifest"),
    path("batches/<id:public_id>/download/", exports.batch_download, name="batch_download"),
    path("exports/", exports.export_list, name="export_list"),
    path("exports/<id:public_id>/", exports.export_detail, name="export_detail"),
    path("exports/<id:public_id>/live/", exports.export_live, name="export_live"),
    path("exports/<id:public_id>/files/<version:number>/", exports.export_file, name="export_file"),
    path("exports/<id:public_id>/again/", exports.export_again, name="export_again"),
    path("exports/<id:public_id>/cancel/", exports.export_cancel, name="export_cancel"),
    path("documents/<id:public_id>/", documents.document_detail, name="document_detail"),
    path("documents/<id:public_id>/live/", documents.document_live, name="document_live"),
    path("documents/<id:public_id>/reveal/", documents.document_reveal, name="document_reveal"),
    path("documents/<id:public_id>/notes/", documents.document_note, name="document_note"),
    path("documents/<id:public_id>/reconcile/", reconcile.document_reconcile, name="document_reconcile"),
    path("documents/<id:public_id>/actions/<slug:verb>/", verbs.document_verb, name="document_verb"),
    path("documents/<id:public_id>/v<version:number>.pdf", documents.document_pdf, name="document_pdf"),
    path("documents/<id:public_id>/v<version:number>.png", thumbnails.document_thumbnail, name="document_thumbnail"),
    path("documents/<id:public_id>/regenerate/", versions.document_regenerate, name="document_regenerate"),
    path("documents/<id:public_id>/final/", versions.document_final, name="document_final"),
    path(
        "documents/<id:public_id>/versions/<version:old>/<version:new>/", versions.document_diff, name="document_diff"
    ),
    path("templates/", templates.template_list, name="template_list"),
    path("templates/new/", templates.template_new, name="template_new"),
    path("templates/<slug:slug>/", templates.template_detail, name="template_detail"),
    path("templates/<slug:slug>/sample.csv", template_versions.template_sample, name="template_sample"),
    path(
        "templates/<slug:slug>/versions/<version:number>/",
        template_versions.template_version,
        name="template_version",
    ),
    path(
        "templates/<slug:slug>/versions/<version:number>/preview/",
        template_versions.template_preview,
        name="template_preview",
    ),
    path(
        "templates/<slug:slug>/versions/<version:number>/publish/",
        template_versions.template_publish,
        name="template_publish",
    ),
    path("notices/", notices.notice_list, name="notice_list"),
    path("notices/seen/", notices.notices_seen, name="notices_seen"),
    path("rights/", rights.rights_list, name="rights_list"),
    path("retention/", retention.retention_list, name="retention_list"),
    path("retention/<slug:slug>/", retention.retention_detail, name="retention_detail"),
    path("documents/<id:public_id>/deletions/", retention.document_deletions, name="document_deletions"),
    path("documents/<id:public_id>/deletions.json", retention.document_deletions_json, name="document_deletions_json"),
    path("accounts/", accounts.account_list, name="account_list"),
    path("new-account/", account_settings.account_new, name="account_new"),
    path("new-account/<slug:kind>/", account_settings.account_add, name="account_add"),
    path("accounts/<slug:slug>/", accounts.account_detail, name="account_detail"),
    path("accounts/<slug:slug>/live/", accounts.account_live, name="account_live"),
    path("accounts/<slug:slug>/limits/", account_changes.account_limits, name="account_limits"),
    path("accounts/<slug:slug>/settings/", account_settings.account_settings, name="account_settings"),
    path("accounts/<slug:slug>/test/", account_changes.account_test, name="account_test"),
    path("accounts/<slug:slug>/hold/", account_changes.account_hold, name="account_hold"),
    path("accounts/<slug:slug>/resume/", account_changes.account_resume, name="account_resume"),
    path("inbox/", inbox.inbox, name="inbox"),
    path("accounts/<slug:slug>/replay/", inbox.inbox_replay, name="inbox_replay"),
    path("inbox/<int:number>/", inbox.inbox_event, name="inbox_event"),
    path("inbox/<int:number>/reveal/", inbox.inbox_reveal, name="inbox_reveal"),
    path("health/", vitals.vitals_page, name="vitals"),
    path("health/live/", vitals.vitals_live, name="vitals_live"),
    path("audit/", audit.audit_list, name="audit_list"),
    path("audit/entries.csv", audit.audit_csv, name="audit_csv"),
    path("help/", help.help_index, name="help_index"),
    path("help/<slug:name>/", help.help_topic, name="help_topic"),
    path("webhooks/<slug:account>", webhooks.webhook, name="webhook"),
    path("webhooks/<slug:account>/<slug:token>/<slug:key>", webhooks.callback, name="callback"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    # Pages that are not ours (the admin, a PDF in a tab) ask for it where browsers expect it.
    path("favicon.ico", RedirectView.as_view(url=lazy(static, str)("batches/logo.svg"))),
    path("sign-in/", sessions.SignIn.as_view(), name="login"),
    path("sign-out/", LogoutView.as_view(), name="logout"),
    path("sign-out/everywhere/", sessions.sign_out_everywhere, name="sign_out_everywhere"),
    path("api/v1/", not_found),
    path("api/v1/", api.urls),
    re_path("^api/", not_found),
    path("", include((pages, "batches"))),
]
