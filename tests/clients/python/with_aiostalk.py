import asyncio

import aiostalk
from greenstalk import NotFoundError, TimedOutError
from story import PRODUCER, TUBE, WAIT_SECONDS_MAX, WORKER, expect, ok


async def story():
    producer = aiostalk.Client(PRODUCER, use=TUBE)
    await producer.connect()
    worker = aiostalk.Client(WORKER, watch=TUBE)
    await worker.connect()

    waiting = asyncio.create_task(worker.reserve(timeout=20))
    for _ in range(WAIT_SECONDS_MAX * 50):
        seen = (await producer.stats_tube(TUBE))["current-waiting"]
        if seen == 1:
            break
        await asyncio.sleep(0.02)
    expect(seen, 1, "workers that wait")
    id = await producer.put(b"hello", priority=7, ttr=30)
    job = await asyncio.wait_for(waiting, 20)
    expect((job.id, job.body), (id, "hello"), "the job")
    ok("waiting reserve")

    await worker.touch(job)
    stats = await worker.stats_job(job)
    expect((stats["state"], stats["pri"], stats["ttr"]), ("reserved", 7, 30), "the job")
    ok("touch, stats-job")

    await worker.release(job, delay=1)
    expect((await producer.stats_job(id))["state"], "delayed", "after the release")
    job = await worker.reserve(timeout=10)
    expect(job.id, id, "the job again")
    ok("release with delay")

    await worker.bury(job)
    expect((await producer.peek_buried()).id, id, "the buried job")
    expect(await producer.kick(10), 1, "jobs kicked")
    job = await worker.reserve(timeout=10)
    expect(job.id, id, "the kicked job")
    ok("bury, kick")

    await producer.pause_tube(TUBE, 2)
    second = await producer.put(b"second")
    try:
        await worker.reserve(timeout=0)
        raise AssertionError("a job came out of a paused tube")
    except TimedOutError:
        pass
    again = await worker.reserve(timeout=10)
    expect(again.id, second, "the job after the pause")
    ok("pause")

    expect((await producer.stats_tube(TUBE))["total-jobs"], 2, "jobs of the tube")
    expect((await producer.stats())["current-jobs-reserved"] >= 2, True, "the server's reserved jobs")
    ok("stats")

    await worker.delete(job)
    await worker.delete(again)
    try:
        await worker.delete(job)
        raise AssertionError("deleted twice")
    except NotFoundError:
        pass
    ok("delete")
    await worker.close()
    await producer.close()


asyncio.run(story())
