"""Servers that tests share: one plain one for the right answers, and one pair at a time."""

import itertools
import pathlib
from collections.abc import Callable, Iterator

import pytest
from engines import HOME, Answer, Engine, Pair, connector, prompt

SEEDS = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one pair run one after the other."""
    if not (HOME / "v33" / "bin" / "vllm").exists():
        pytest.exit("vLLM is not installed; `cargo xtask setup --vllm` installs it", returncode=3)


@pytest.fixture(scope="session")
def logs(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def plain(logs) -> Iterator[Engine]:
    """A server that does both sides itself."""
    engine = Engine("v33", None, log=logs / "plain.log")
    yield engine.ready()
    engine.stop()


@pytest.fixture
def fresh() -> Callable[[int], list[int]]:
    """Prompts that no server has seen."""
    return lambda length: prompt(length, 1_000_000 + next(SEEDS))


@pytest.fixture
def expected(plain) -> Callable[[list[int], int], list[int]]:
    """A plain server's greedy answer."""

    def ask(tokens: list[int], n: int) -> list[int]:
        answer: Answer = plain.complete(tokens, n)
        assert not answer.errors, answer.errors
        return answer.tokens[0]

    return ask


class Starter:
    """Keeps one pair running; another one replaces it."""

    def __init__(self, logs: pathlib.Path) -> None:
        self.logs, self.key, self.pair = logs, None, None
        self.count = itertools.count()

    def __call__(self, p: tuple[str, str], d: tuple[str, str], *flags: str, **more) -> Pair:
        """Starts a pair; each side is (kind, version)."""
        key = (p, d, flags, repr(more))
        if key != self.key:
            self.stop()
            self.pair, self.key = self.start(p, d, *flags, **more), key
        return self.pair

    def start(self, p, d, *flags: str, p_flags=(), d_flags=(), p_extra=None, d_extra=None,
              p_dtype="float32", d_dtype="float32", d_more=None) -> Pair:  # fmt: skip
        n = next(self.count)
        prefill = Engine(p[1], connector(p[0], "p", p_extra), *flags, *p_flags, dtype=p_dtype,
                         log=self.logs / f"{n}-p-{p[0]}-{p[1]}.log")  # fmt: skip
        decode = Engine(d[1], connector(d[0], "d", d_extra, **(d_more or {})), *flags, *d_flags,
                        dtype=d_dtype, log=self.logs / f"{n}-d-{d[0]}-{d[1]}.log")  # fmt: skip
        try:
            return Pair(prefill.ready(), decode.ready())
        except BaseException:
            prefill.stop()
            decode.stop()
            raise

    def stop(self) -> None:
        if self.pair is not None:
            self.pair.prefill.stop()
            self.pair.decode.stop()
        self.pair = self.key = None


@pytest.fixture(scope="session")
def starter(logs) -> Iterator[Starter]:
    starter = Starter(logs)
    yield starter
    starter.stop()


OURS = ("ours", "v33")


@pytest.fixture
def ours(starter) -> Pair:
    """Our connector on both sides."""
    return starter(OURS, OURS)
