import threading

import greenstalk
from story import PRODUCER, TUBE, WORKER, expect, ok, poll

producer = greenstalk.Client(PRODUCER, use=TUBE)
worker = greenstalk.Client(WORKER, watch=TUBE)

got = []
waiting = threading.Thread(target=lambda: got.append(worker.reserve(timeout=20)), daemon=True)
waiting.start()
poll(lambda: producer.stats_tube(TUBE)["current-waiting"], 1, "a worker waits")
id = producer.put("hello", priority=7, ttr=30)
waiting.join(timeout=20)
expect([(job.id, job.body) for job in got], [(id, "hello")], "the waiting worker's job")
job = got[0]
ok("waiting reserve")

worker.touch(job)
stats = worker.stats_job(job)
expect((stats["state"], stats["pri"], stats["ttr"], stats["reserves"]), ("reserved", 7, 30, 1), "the job")
ok("touch, stats-job")

worker.release(job, delay=1)
expect(producer.stats_job(id)["state"], "delayed", "after the release")
job = worker.reserve(timeout=10)
expect((job.id, worker.stats_job(job)["releases"]), (id, 1), "the job again")
ok("release with delay")

worker.bury(job)
expect(producer.peek_buried().id, id, "the buried job")
expect(producer.kick(10), 1, "jobs kicked")
job = worker.reserve(timeout=10)
expect(job.id, id, "the kicked job")
ok("bury, kick")

producer.pause_tube(TUBE, 2)
second = producer.put("second")
try:
    worker.reserve(timeout=0)
    raise AssertionError("a job came out of a paused tube")
except greenstalk.TimedOutError:
    pass
again = worker.reserve(timeout=10)
expect(again.id, second, "the job after the pause")
ok("pause")

expect(producer.stats_tube(TUBE)["total-jobs"], 2, "jobs of the tube")
expect(TUBE in producer.tubes(), True, "the tube is listed")
expect(producer.stats()["current-jobs-reserved"] >= 2, True, "the server's reserved jobs")
ok("stats")

worker.delete(job)
worker.delete(again)
try:
    worker.delete(job)
    raise AssertionError("deleted twice")
except greenstalk.NotFoundError:
    pass
ok("delete")
