"""Data terms in columns of their own, where the limits of an account come from, what was refused of its webhooks and how
often the same came again, and what the periodic sweep did last."""

import django.db.models.deletion
from django.db import migrations, models


def terms_to_notes(apps, schema_editor):
    """What somebody wrote down in no fixed form stays readable as a note."""
    accounts = apps.get_model("batches", "ProviderAccount")
    for account in accounts.objects.only("data_terms").exclude(data_terms={}):
        terms = account.data_terms
        pairs = terms.items() if isinstance(terms, dict) else [("terms", terms)]
        words = "\n".join(f"{name}: {value}" for name, value in pairs)
        accounts.objects.filter(pk=account.pk).update(data_notes=words)


class Migration(migrations.Migration):

    dependencies = [
        ('batches', '0012_open_alerts'),
    ]

    operations = [
        migrations.CreateModel(
            name='SweepRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=20)),
                ('ran_at', models.DateTimeField()),
                ('facts', models.JSONField(default=dict, help_text='What the last pass did, in rows and files.')),
                ('found_at', models.DateTimeField(blank=True, null=True)),
                ('found', models.JSONField(blank=True, default=dict, help_text='The same of the last pass that did anything.')),
            ],
        ),
        migrations.CreateModel(
            name='WebhookRefusal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField()),
                ('status', models.PositiveSmallIntegerField(help_text='What was answered.')),
                ('words', models.CharField(help_text='Why, as it was answered last.', max_length=200)),
                ('count', models.PositiveIntegerField(default=0)),
                ('last_at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='provideraccount',
            name='data_notes',
            field=models.TextField(blank=True, default='', help_text='What else whoever starts a batch should know.'),
        ),
        migrations.RunPython(terms_to_notes, migrations.RunPython.noop, elidable=True),
        migrations.RemoveField(
            model_name='provideraccount',
            name='data_terms',
        ),
        migrations.AddField(
            model_name='provideraccount',
            name='output_retention',
            field=models.CharField(blank=True, default='', help_text='How long the provider keeps the PDF, such as: 24 hours.', max_length=100),
        ),
        migrations.AddField(
            model_name='provideraccount',
            name='pace_source',
            field=models.CharField(blank=True, default='', help_text='Where these limits come from, such as: free tier, 20 a minute.', max_length=200),
        ),
        migrations.AddField(
            model_name='provideraccount',
            name='processing_region',
            field=models.CharField(blank=True, default='', help_text='Where documents are rendered, such as: Frankfurt, EU.', max_length=100),
        ),
        migrations.AddField(
            model_name='provideraccount',
            name='processor',
            field=models.CharField(blank=True, default='', help_text='Who processes it and under which contract.', max_length=200),
        ),
        migrations.AddField(
            model_name='provideraccount',
            name='source_retention',
            field=models.CharField(blank=True, default='', help_text='How long the provider keeps what is sent, such as: 1 hour.', max_length=100),
        ),
        migrations.AddField(
            model_name='webhookevent',
            name='repeat_count',
            field=models.PositiveIntegerField(default=0, help_text='How often the same bytes came again.'),
        ),
        migrations.AddIndex(
            model_name='webhookevent',
            index=models.Index(fields=['-received_at', '-id'], name='webhook_event_list'),
        ),
        migrations.AddIndex(
            model_name='webhookevent',
            index=models.Index(fields=['outcome', '-received_at', '-id'], name='webhook_event_list_by_outcome'),
        ),
        migrations.AddConstraint(
            model_name='sweeprun',
            constraint=models.UniqueConstraint(fields=('name',), name='sweep_run_once_per_name'),
        ),
        migrations.AddField(
            model_name='webhookrefusal',
            name='account',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='webhook_refusals', to='batches.provideraccount'),
        ),
        migrations.AddIndex(
            model_name='webhookrefusal',
            index=models.Index(fields=['-hour'], name='webhook_refusal_latest'),
        ),
        migrations.AddConstraint(
            model_name='webhookrefusal',
            constraint=models.UniqueConstraint(fields=('account', 'hour', 'status'), name='webhook_refusal_once_per_hour'),
        ),
    ]
