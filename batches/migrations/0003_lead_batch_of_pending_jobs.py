"""Give each pending job the batch whose turn it takes: of those that need it, one that runs, the oldest first."""

from django.db import migrations
from django.db.models import F, OuterRef, Subquery


def choose_lead_batches(apps, schema_editor):
    Job = apps.get_model("batches", "Job")
    BatchItem = apps.get_model("batches", "BatchItem")
    needing = (
        BatchItem.objects.filter(version_id=OuterRef("version_id"), cancelled_at=None, batch__cancelled_at=None)
        .order_by(F("batch__paused_at").desc(nulls_first=True), "batch_id")
        .values("batch_id")[:1]
    )
    Job.objects.filter(state="pending", lead_batch=None).update(lead_batch=Subquery(needing))


class Migration(migrations.Migration):
    dependencies = [("batches", "0002_engine_under_every_fault")]
    operations = [migrations.RunPython(choose_lead_batches, migrations.RunPython.noop)]
