"""Tests of the mail as a face."""
