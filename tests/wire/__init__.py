"""Tests of wire/: bytes, messages, who may say what when, and the page that documents them."""
