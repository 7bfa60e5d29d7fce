"""A headless Chromium, where there is one; with CI=true it must be there."""

import os
import shutil

import pytest


def chromium() -> str | None:
    """Path of the browser: SPECDYNO_CHROMIUM, else the first that is installed."""
    named = os.environ.get("SPECDYNO_CHROMIUM")
    return named or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


@pytest.fixture(scope="session")
def browser():
    executable = chromium()
    if executable is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium: apt-get install chromium, or set SPECDYNO_CHROMIUM")
        pytest.skip("no Chromium: apt-get install chromium, or set SPECDYNO_CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"],
        )
        yield browser
        browser.close()
