import threading

from pystalk import BeanstalkClient, BeanstalkError
from story import PRODUCER, TUBE, WORKER, expect, ok, poll

producer = BeanstalkClient(*PRODUCER, auto_decode=True)
producer.use(TUBE)
worker = BeanstalkClient(*WORKER, auto_decode=True)
worker.watch(TUBE)

got = []
waiting = threading.Thread(target=lambda: got.append(worker.reserve_job(20)), daemon=True)
waiting.start()
poll(lambda: producer.stats_tube(TUBE)["current-waiting"], 1, "a worker waits")
_, id = producer.put_job("hello", pri=7, ttr=30)
waiting.join(timeout=20)
expect([(job.job_id, job.job_data) for job in got], [(id, "hello")], "the waiting worker's job")
ok("waiting reserve")

stats = worker.stats_job(id)
expect((stats["state"], stats["pri"], stats["ttr"]), ("reserved", 7, 30), "the job")
ok("stats-job")

worker.release_job(id, delay=1)
expect(producer.stats_job(id)["state"], "delayed", "after the release")
expect(worker.reserve_job(10).job_id, id, "the job again")
ok("release with delay")

worker.bury_job(id)
expect(producer.peek_buried().job_id, id, "the buried job")
expect(producer.kick_jobs(10)[1], 1, "jobs kicked")
expect(worker.reserve_job(10).job_id, id, "the kicked job")
ok("bury, kick")

producer.pause_tube(TUBE, 2)
_, second = producer.put_job("second")
try:
    worker.reserve_job(0)
    raise AssertionError("a job came out of a paused tube")
except BeanstalkError as error:
    expect(error.message, "TIMED_OUT", "a reserve from a paused tube")
expect(worker.reserve_job(10).job_id, second, "the job after the pause")
ok("pause")

expect(producer.stats_tube(TUBE)["total-jobs"], 2, "jobs of the tube")
expect(producer.stats()["current-jobs-reserved"] >= 2, True, "the server's reserved jobs")
ok("stats")

worker.delete_job(id)
worker.delete_job(second)
try:
    worker.delete_job(id)
    raise AssertionError("deleted twice")
except BeanstalkError as error:
    expect(error.message, "NOT_FOUND", "a second delete")
ok("delete")
