"""A worker that stalls for longer than the heartbeat timeout of an activity that waits in it."""

import signal

import pytest
from activity_operations import Handle, tokens_of, until_line
from proxy import TcpProxy
from stage import Kind, Stage, until
from temporalio.client import Client
from worker_process import stopped, worker_process

from lock_interceptor.dev.process import HOST


@pytest.mark.parametrize("name", ["async", "thread"])
@pytest.mark.parametrize("at_once", [True, False], ids=["lock is free", "lock is held"])
async def test_stalled_worker(stage: Stage, kinds: dict[str, Kind], name: str, at_once: bool) -> None:
    """The next attempt goes on elsewhere, in its place; the stalled one takes neither lock nor place."""
    kind = kinds[name]
    async with stage.worker(), stage.somebody_else() as guarding:
        with worker_process(stage, "stalling_worker.py") as stalling:
            handle = await stage.start(
                kind, stage.play(name="first-", waits=True, heartbeats=True), heartbeat=2
            )
            (before,) = (await stage.until_waiting(1)).waiters
            assert before.party.worker.startswith(f"{stalling.pid}@")
            with stopped(stalling):
                async with stage.worker(kind=kind, workflows=[]):
                    second = await stage.start(kind, stage.play(name="second-"), heartbeat=2)
                    await until_next_attempt(stage, handle)
                    line = await until_line(stage, (handle, True), (second, True))
                    assert line[0].waiter == before.waiter
                    if at_once:
                        await stage.store.release(guarding)
                        stage.cue("first-go")
                        tokens = await tokens_of(handle, second)
                    stalling.send_signal(signal.SIGCONT)
                    await stage.saw("first-left1")
                    if not at_once:
                        again = await until_line(stage, (handle, True), (second, True))
                        assert [waiter.waiter for waiter in again] == [waiter.waiter for waiter in line]
                        await stage.store.release(guarding)
                        stage.cue("first-go")
                        tokens = await tokens_of(handle, second)
    assert tokens == sorted(tokens)
    began = [note.name for note in stage.scene.iterdir() if note.name.startswith("first-began")]
    assert began == [f"first-began{line[0].party.attempt}"]


async def test_heartbeats_that_come_late(stage: Stage, kind: Kind) -> None:
    """Whose heartbeats reach the server too late, though it sent them in time, goes on in its place."""
    with TcpProxy(int(stage.temporal.address.rpartition(":")[2])) as proxy:
        behind_proxy = await Client.connect(f"{HOST}:{proxy.port}")
        async with (
            stage.worker(),
            stage.somebody_else() as guarding,
            stage.worker(kind=kind, workflows=[], client=behind_proxy),
        ):
            first = await stage.start(kind, stage.play(name="first-"), heartbeat=2, backoff=5)
            await stage.until_waiting(1)
            second = await stage.start(kind, stage.play(name="second-"), start_to_close=60)
            before = await until_line(stage, (first, True), (second, True))

            async def timed_out(handle: Handle = first) -> bool:
                info = await stage.pending(handle)
                return info is not None and info.last_failure.HasField("timeout_failure_info")

            proxy.delay(2.5)
            await until(timed_out, "the heartbeat timeout")
            proxy.heal()
            await until_next_attempt(stage, first)
            after = await until_line(stage, (first, True), (second, True))
            assert [waiter.waiter for waiter in after] == [waiter.waiter for waiter in before]
            await stage.store.release(guarding)
            tokens = await tokens_of(first, second)
    assert tokens == sorted(tokens)


async def until_next_attempt(stage: Stage, handle: Handle) -> None:
    """Wait until an attempt after the first one is in line."""

    async def there() -> bool:
        return any(
            waiter.present and waiter.party.workflow == handle.id and waiter.party.attempt > 1
            for waiter in (await stage.state()).waiters
        )

    await until(there, "the next attempt")
