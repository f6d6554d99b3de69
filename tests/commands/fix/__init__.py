"""Tests of fixes, their verification and the replacement of files."""
