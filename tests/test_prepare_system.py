"""Installing what pip cannot, with a package manager that is never really called."""

import os
import subprocess

import pytest

from scripts import prepare_system
from scripts.prepare_system import Need, prepare


@pytest.fixture
def installed(monkeypatch):
    """Commands that were run; 'root' may run them."""
    commands = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prepare_system.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    return commands


def lamp(installed: list) -> Need:
    return Need("lamp", "which gives light", lambda: "" if installed else "it is dark; install it with 'sudo ...'")


def test_root_installs_what_is_missing_after_refreshing_the_list(installed):
    assert prepare(lamp(installed)) == ""
    assert installed[0][:2] == ["apt-get", "update"]
    assert installed[1][:2] == ["apt-get", "install"] and installed[1][-1] == "lamp"


def test_what_is_there_is_left_alone(installed):
    assert prepare(Need("lamp", "", lambda: "")) == "" and not installed


def test_another_user_is_told_the_command(installed, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "install it with 'sudo" in prepare(lamp(installed)) and not installed


def test_a_package_that_cannot_be_had_is_still_missing(installed):
    assert prepare(Need("lamp", "", lambda: "it is dark")) == "it is dark" and len(installed) == 2


def test_looking_for_a_renderer_decides_nothing_for_later(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    prepare_system.missing_renderer()
    assert "MUJOCO_GL" not in os.environ


def test_a_browser_that_is_not_there_is_named_with_the_way_out(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    assert prepare_system.browser() is None
    assert "sudo apt-get install -y chromium" in prepare_system.missing_browser()
