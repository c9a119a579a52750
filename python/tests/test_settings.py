"""Settings: each refusal names the key, the value and what is allowed."""

import pytest

import kvbaton


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hold_timeout": 0}, r"`hold_timeout`.*seconds above 0.*got 0"),
        ({"hold_timeout": "soon"}, r"`hold_timeout`.*got \"soon\""),
        ({"load_timeout": -1.5}, r"`load_timeout`.*-1.5"),
        ({"data_port": 70000}, r"`data_port`.*0 to 65535.*70000"),
        ({"senders": True}, r"`senders`.*whole number.*True"),
        ({"allow_stock_peers": "yes"}, r"`allow_stock_peers`.*True or False"),
        ({"host": ""}, r"`host`.*non-empty"),
        ({"tp_rank": 2, "tp_size": 2}, r"tp_rank 2 must be below tp_size 2"),
        ({"allowed_networks": ["nowhere"]}, r"allowed_networks.*nowhere"),
        ({"cluster_key": "short"}, r"`cluster_key`"),
        ({"cluster_key": "k" * 16, "cluster_key_file": "f"}, r"`cluster_key`.*`cluster_key_file`"),
        ({"cluster_key_file": "/does/not/exist"}, r"`cluster_key_file`.*/does/not/exist"),
        ({"hold_timeoutt": 1}, r"`hold_timeoutt` is not known; did you mean `hold_timeout`"),
        ({"colour": 1}, r"`colour` is not known.*hold_timeout"),
    ],
)
def test_a_wrong_setting_is_named(settings, says):
    with pytest.raises(kvbaton.ConfigError, match=says):
        kvbaton.Node("n", **settings)


def test_a_wrong_role_is_named():
    with pytest.raises(kvbaton.ConfigError, match="role.*prefill, decode, both.*'?consumer"):
        kvbaton.Node("n", "consumer")


def test_none_counts_as_absent():
    kvbaton.Node("n", hold_timeout=None).close()
