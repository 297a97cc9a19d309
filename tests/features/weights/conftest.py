import pytest
from weights_server import serving, use_own_folders


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    use_own_folders(tmp_path, monkeypatch)


@pytest.fixture
def server():
    with serving() as facts:
        yield facts
