"""Calls side by side: results by name, the first failure, and nothing left behind."""

import asyncio
import gc

import pytest

from ckptctl.errors import UnreachableError
from ckptctl.workflows.waiting import side_by_side


def failing(name: str, *, after: int = 0):
    async def call():
        for _ in range(after):
            await asyncio.sleep(0)
        raise UnreachableError(server=name, operation="capabilities", detail="reset")

    return call


async def works():
    return "done"


@pytest.mark.parametrize("after", [0, 1])
def test_a_second_failure_is_no_traceback_of_the_event_loop(after) -> None:
    """Two servers that fail the same step: one is told, the other one's exception is not left unheard."""
    told = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        with pytest.raises(UnreachableError, match="`one`"):
            await side_by_side({"one": failing("one"), "two": failing("two", after=after), "three": works})
        await asyncio.sleep(0)
        gc.collect()  # an exception that nobody asked for is told when its task is collected

    asyncio.run(main())

    assert [] == told


def test_results_by_name() -> None:
    """None is lost, and none waited for in vain."""
    assert {"one": "done", "two": "done"} == asyncio.run(side_by_side({"one": works, "two": works}))
    assert {} == asyncio.run(side_by_side({}))
