import pytest

pytest.register_assert_rewrite("tests.stores.seen_by_clients")
